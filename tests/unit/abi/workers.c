/* Two workers, as threads. */
#include "errors.h"

#include <pthread.h>
#include <stdio.h>

static pthread_barrier_t both;

static sar_handle join(int rank, int port, double operation_seconds) {
  sar_handle s = 0;
  sar_session_config config = {.size = sizeof config, .rank = rank, .world = 2, .master_addr = "127.0.0.1",
      .master_port = port, .transport = "tcp", .operation_seconds = operation_seconds,
      .job_token = "the token of a test"};
  WORKS(sar_session_open, &config, &s);
  pthread_barrier_wait(&both);
  return s;
}

/* Each of the four ends of a session in which workers do not do the same. */
static void disagree(int rank, int port, const char *folder) {
  char json[512], *text;
  DLTensor *x = FLOATS(2, 4);
  sar_handle s = join(rank, port, 0), p, g;
  sprintf(json, "%s/g.json", folder);
  WORKS(sar_partition_open, json, 0, 0, &p);
  VALUE(sar_graph_build, s, p, 0, &g); /* one part, and two workers */
  WORKS(sar_partition_close, p);
  if (rank == 0)
    GIVES(SAR_ERR_SCHEDULE, sar_barrier, s, SAR_COMM_REDUCE);
  else
    GIVES(SAR_ERR_SCHEDULE, sar_all_reduce, s, SAR_COMM_REDUCE, x, SAR_SUM);
  pthread_barrier_wait(&both);
  WORKS(sar_session_close, s);

  s = join(rank, port, 0);
  if (rank == 0) WORKS(sar_session_abort, s, "no more");
  if (rank == 1) {
    GIVES(SAR_ERR_REMOTE, sar_barrier, s, SAR_COMM_REDUCE);
    GIVES(SAR_ERR_REMOTE, sar_session_memory, s, 0, &text);
  }
  pthread_barrier_wait(&both);
  WORKS(sar_session_close, s);

  s = join(rank, port, 0);
  GIVES(SAR_ERR_BUDGET, sar_session_set_window, s, 1);
  if (rank == 1) {
    GIVES(SAR_ERR_PEER_LOST, sar_barrier, s, SAR_COMM_REDUCE);
    GIVES(SAR_ERR_PEER_LOST, sar_session_memory, s, 0, &text);
  }
  WORKS(sar_session_close, s);
  pthread_barrier_wait(&both);

  s = join(rank, port, 0.5);
  if (rank == 1) GIVES(SAR_ERR_TIMEOUT, sar_barrier, s, SAR_COMM_REDUCE);
  pthread_barrier_wait(&both);
  WORKS(sar_session_close, s);
}

struct worker {
  int port;
  const char *folder;
};

static void *second(void *given) {
  struct worker *w = given;
  disagree(1, w->port, w->folder);
  return NULL;
}

void two_workers(const char *folder, int port) {
  struct worker w = {port, folder};
  pthread_t thread;
  pthread_barrier_init(&both, NULL, 2);
  pthread_create(&thread, NULL, second, &w);
  disagree(0, port, folder);
  pthread_join(thread, NULL);
}
