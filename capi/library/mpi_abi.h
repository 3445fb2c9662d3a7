// What is used of MPI, as the standard's application binary interface of MPI 5 has it. The library
// is opened at run time, so nothing of MPI is needed to build.
#ifndef SAR_MPI_ABI_H
#define SAR_MPI_ABI_H

#include <stdint.h>

enum { MPI_ABI_MAJOR = 1 };

// Handles are pointers, of which those that the standard names are small numbers.
typedef struct mpi_comm *mpi_comm;
typedef struct mpi_type *mpi_type;
typedef struct mpi_request *mpi_request;
typedef struct mpi_errhandler *mpi_errhandler;
#define MPI_COMM_WORLD ((mpi_comm)0x101)
#define MPI_COMM_SELF ((mpi_comm)0x102)
#define MPI_BYTE ((mpi_type)0x247)
#define MPI_ERRORS_RETURN ((mpi_errhandler)0x143)
#define MPI_REQUEST_NULL ((mpi_request)0x180)

enum {
	MPI_SUCCESS = 0,
	MPI_ERR_IN_STATUS = 19,
	MPI_THREAD_MULTIPLE = 4096,
	MPI_TAG_UB = 501, // an attribute of MPI_COMM_WORLD
	MPI_MAX_ERROR_STRING = 512,
	MPI_MAX_LIBRARY_VERSION_STRING = 8192,
};

struct mpi_status {
	int source, tag, error, internal[5];
};

// MPI_FUNCTIONS(F) is F(name, (parameters)) for each function that is used. All return an int.
#define MPI_FUNCTIONS(F)                                                                                             \
	F(MPI_Abi_get_version, (int *major, int *minor))                                                                  \
	F(MPI_Get_library_version, (char *version, int *length))                                                          \
	F(MPI_Initialized, (int *flag))                                                                                   \
	F(MPI_Finalized, (int *flag))                                                                                     \
	F(MPI_Init_thread, (int *argc, char ***argv, int required, int *provided))                                        \
	F(MPI_Query_thread, (int *provided))                                                                              \
	F(MPI_Finalize, (void))                                                                                           \
	F(MPI_Comm_rank, (mpi_comm, int *rank))                                                                           \
	F(MPI_Comm_size, (mpi_comm, int *size))                                                                           \
	F(MPI_Comm_get_attr, (mpi_comm, int key, void *value, int *flag))                                                 \
	F(MPI_Comm_set_errhandler, (mpi_comm, mpi_errhandler))                                                            \
	F(MPI_Comm_idup, (mpi_comm, mpi_comm *copy, mpi_request *))                                                       \
	F(MPI_Ibcast, (void *buffer, int count, mpi_type, int root, mpi_comm, mpi_request *))                             \
	F(MPI_Isend, (const void *buffer, int count, mpi_type, int to, int tag, mpi_comm, mpi_request *))                 \
	F(MPI_Irecv, (void *buffer, int count, mpi_type, int from, int tag, mpi_comm, mpi_request *))                     \
	F(MPI_Test, (mpi_request *, int *flag, struct mpi_status *))                                                      \
	F(MPI_Testsome, (int count, mpi_request *, int *done, int *indices, struct mpi_status *))                         \
	F(MPI_Cancel, (mpi_request *))                                                                                    \
	F(MPI_Test_cancelled, (const struct mpi_status *, int *flag))                                                     \
	F(MPI_Get_count, (const struct mpi_status *, mpi_type, int *count))                                               \
	F(MPI_Error_string, (int code, char *text, int *length))

#endif
