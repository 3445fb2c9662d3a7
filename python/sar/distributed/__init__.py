"""Workers: rendezvous, collectives, gradient reduction, shutdown."""
