/* Makes functions of sar.h fail in the ways that it documents. For each failure main.c prints the
 * function and the status, which a test holds against the header. */
#ifndef ERRORS_H
#define ERRORS_H

#include "sar.h"

#include <stddef.h>

/* check notes what a call in a line gives. It returns that. */
sar_status check(int line, const char *function, sar_status want, sar_status got);

#define GIVES(status, f, ...) check(__LINE__, #f, status, f(__VA_ARGS__))
#define WORKS(f, ...) GIVES(SAR_OK, f, __VA_ARGS__)
#define VALUE(f, ...) GIVES(SAR_ERR_VALUE, f, __VA_ARGS__)
#define TYPE(f, ...) GIVES(SAR_ERR_TYPE, f, __VA_ARGS__)
/* The handle 0, one of another kind, and one that is closed. */
#define HANDLE(closed, f, ...) \
  (VALUE(f, 0, __VA_ARGS__), VALUE(f, some_program, __VA_ARGS__), GIVES(SAR_ERR_CLOSED, f, closed, __VA_ARGS__))
#define HANDLE_ALONE(closed, f) (VALUE(f, 0), VALUE(f, some_program), GIVES(SAR_ERR_CLOSED, f, closed))

/* Objects to be mistaken for others, and objects that are closed. */
extern sar_handle some_program, closed_session, closed_partition, closed_dataset, closed_graph;

/* A tensor [n], or [n, w] for w >= 0. */
DLTensor tensor(uint8_t code, uint8_t bits, void *data, int64_t n, int64_t w);
#define COUNT(a) (sizeof(a) / sizeof *(a))
#define INTS(...) \
  (&(DLTensor[]){tensor(0, 64, (int64_t[]){__VA_ARGS__}, COUNT(((int64_t[]){__VA_ARGS__})), -1)}[0])
#define SMALL(...) \
  (&(DLTensor[]){tensor(0, 32, (int32_t[]){__VA_ARGS__}, COUNT(((int32_t[]){__VA_ARGS__})), -1)}[0])
#define FLOATS(n, w) (&(DLTensor[]){tensor(2, 32, (float[64]){0}, n, w)}[0])
#define DOUBLES(n, w) (&(DLTensor[]){tensor(2, 64, (double[64]){0}, n, w)}[0])

/* A graph of four nodes in a ring, with self loops: 8 edges. */
sar_handle ring(sar_handle session);

/* The rooms of sar.h. folder is where datasets leaves a partition of one part, g.json. */
void process(void);
void kernels(void);
void sessions(void);
void datasets(const char *npz, const char *folder);
void building(sar_handle session, const char *folder);
void passing(sar_handle session);
void sampling(sar_handle session);
void broken_off(sar_handle session); /* the session has ended after it */
void two_workers(const char *folder, int port);

#endif
