"""Operations on graphs with their gradients, one ``autograd.Function`` per file."""
