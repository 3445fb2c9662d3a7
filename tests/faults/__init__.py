"""Random faults in small training jobs: ``make faults`` (``python -m faults --help``, from ``tests/``).

A case is drawn from a seed: how many workers on which hosts, by which transport, which model, and one fault that
strikes one of them in one phase. Hosts are network namespaces, workers are forked from a process that has imported
torch and has not started the engine. What the workers saw is held against a run of the same job without a fault.

=============  =====================================================
``case``       what is drawn from a seed
``job``        the training job, and what a worker reports
``kinds``      the faults
``run``        one case: hosts, workers, the fault, the end
``verdict``    what must hold afterwards
``__main__``   many cases, a table, the seeds that failed
=============  =====================================================
"""
