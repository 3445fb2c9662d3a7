"""Results of a session against DGL or plain torch on the whole graph."""
