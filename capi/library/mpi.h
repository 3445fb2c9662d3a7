// MPI as a transport: its table.
#ifndef SAR_LIBRARY_MPI_H
#define SAR_LIBRARY_MPI_H

#include "open.h"
#include "sar.h"

extern struct library mpi_library;

const sar_transport *mpi_table(void);

// mpi_end finalizes MPI, as the end of the process does.
void mpi_end(void);

#endif
