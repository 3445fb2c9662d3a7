/* Distributed message passing from C: P processes, each with its share of a
 * graph's nodes, aggregate over TCP, or over a transport of this program's own
 * (sockets.h), and check the result, forward and backward, against a serial
 * computation on the whole graph. No Python anywhere.
 *
 *   aggregate [P [transport]]     starts P workers (default 3), each a process of
 *                                 its own, that use a transport (default tcp)
 *
 * A worker reads RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and SAR_TRANSPORT from its
 * environment, so it can as well be started by hand on P machines.
 */
#define _POSIX_C_SOURCE 200809L
#include <arpa/inet.h>
#include <math.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sar.h"
#include "sockets.h"

enum { NODES = 1000, DEGREE = 12, EDGES = NODES * DEGREE, WIDTH = 6, HEADS = 2, MOST_WORKERS = 64, SECONDS = 60 };

extern char **environ;

/* ---- the graph, the same in every process ------------------------------- */

static int64_t source[EDGES], target[EDGES];
static double feature[NODES][WIDTH], gradient[NODES][WIDTH], weight[EDGES][HEADS];

static double next_number(void) { /* in [-1, 1), the same sequence everywhere */
  static uint64_t state = 12345;
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (double)(int64_t)state / 9223372036854775808.0;
}

static void make_graph(void) {
  for (int k = 0; k < EDGES; k++) {
    target[k] = k / DEGREE; /* edges come by target */
    source[k] = (int64_t)((next_number() + 1) / 2 * NODES);
    for (int h = 0; h < HEADS; h++) weight[k][h] = next_number();
  }
  for (int i = 0; i < NODES; i++)
    for (int c = 0; c < WIDTH; c++) {
      feature[i][c] = next_number();
      gradient[i][c] = next_number();
    }
}

/* ---- what every worker should get, computed serially -------------------- */

static double want_out[NODES][WIDTH], want_grad_u[NODES][WIDTH], want_grad_e[EDGES][HEADS];

/* What an edge sends: the feature of its source, times its weight where there are such. */
typedef struct {
  int weighted;
  const char *reduce; /* "sum" or "mean" */
} message;

/* out[i] = sum or mean over edges (j -> i) of feature[j] * weight, and its gradients. */
static void serial(const message *what) {
  double scale = strcmp(what->reduce, "mean") ? 1.0 : 1.0 / DEGREE; /* every node has DEGREE in-edges */
  memset(want_out, 0, sizeof want_out);
  memset(want_grad_u, 0, sizeof want_grad_u);
  memset(want_grad_e, 0, sizeof want_grad_e);
  for (int k = 0; k < EDGES; k++)
    for (int c = 0; c < WIDTH; c++) {
      int head = c / (WIDTH / HEADS);
      double w = (what->weighted ? weight[k][head] : 1.0) * scale;
      want_out[target[k]][c] += w * feature[source[k]][c];
      want_grad_u[source[k]][c] += w * gradient[target[k]][c];
      want_grad_e[k][head] += scale * feature[source[k]][c] * gradient[target[k]][c];
    }
}

/* ---- helpers ------------------------------------------------------------ */

static int rank, world;

static void must(sar_status status, const char *what) {
  if (status == SAR_OK) return;
  fprintf(stderr, "rank %d: %s: %s\n", rank, what, sar_last_error());
  exit(1);
}

static DLTensor tensor(void *data, int32_t ndim, int64_t *shape, uint8_t code, uint8_t bits) {
  DLTensor t = {.data = data, .device = {1, 0}, .ndim = ndim, .dtype = {code, bits, 1}, .shape = shape};
  return t;
}

static DLTensor doubles(void *data, int64_t *shape) { return tensor(data, 2, shape, 2, 64); }
static DLTensor integers(void *data, int64_t *shape) { return tensor(data, 1, shape, 0, 64); }

static double largest_difference(const double *a, const double *b, int64_t n) {
  double worst = 0;
  for (int64_t i = 0; i < n; i++) {
    double d = fabs(a[i] - b[i]);
    if (!(d <= worst)) worst = d; /* a NaN sticks out */
  }
  return worst;
}

/* ---- one worker --------------------------------------------------------- */

static sar_handle program_of(const message *what) {
  const char *rows = "{\"side\": \"u\", \"shape\": [%d, %d]}";
  const char *weights = ", {\"side\": \"e\", \"shape\": [%d, 1]}], "
                        "\"code\": [{\"op\": \"mul\", \"a\": 0, \"b\": 1}], \"result\": 2";
  char text[256];
  sar_handle program;
  int n = sprintf(text, "{\"reduce\": \"%s\", \"operands\": [", what->reduce);
  n += sprintf(text + n, rows, HEADS, WIDTH / HEADS);
  n += sprintf(text + n, what->weighted ? weights : "], \"code\": [], \"result\": 0", HEADS);
  strcpy(text + n, "}");
  must(sar_program_create(text, &program), "making a program");
  return program;
}

static double check(sar_handle graph, const message *what, int64_t first, int64_t rows) {
  static double out[NODES][WIDTH], grad_u[NODES][WIDTH], grad_e[EDGES][HEADS];
  int64_t node_shape[] = {rows, WIDTH}, edge_shape[] = {rows * DEGREE, HEADS};
  int operands = what->weighted ? 2 : 1;
  DLTensor in[] = {doubles(feature[first], node_shape), doubles(weight[first * DEGREE], edge_shape)};
  DLTensor g = doubles(gradient[first], node_shape), y = doubles(out, node_shape);
  DLTensor grads[] = {doubles(grad_u, node_shape), doubles(grad_e, edge_shape)};

  sar_handle program = program_of(what);
  sar_program_call call = {.size = sizeof call, .need_grad = (1u << operands) - 1};
  uint32_t saves; /* of operands and result, what backward reads: all are here still */
  must(sar_program_forward(graph, program, &call, in, operands, NULL, 0, &y, &call.agreed, &saves), "forward");
  must(sar_program_backward(graph, program, &call, in, operands, NULL, 0, &y, &g, grads, operands), "backward");
  must(sar_program_free(program), "freeing the program");

  serial(what);
  double worst = largest_difference(out[0], want_out[first], rows * WIDTH);
  double d = largest_difference(grad_u[0], want_grad_u[first], rows * WIDTH);
  if (!(d <= worst)) worst = d;
  if (what->weighted) {
    d = largest_difference(grad_e[0], want_grad_e[first * DEGREE], rows * DEGREE * HEADS);
    if (!(d <= worst)) worst = d;
  }
  return worst;
}

static int worker(void) {
  rank = atoi(getenv("RANK"));
  world = atoi(getenv("WORLD_SIZE"));
  if (sar_abi_version() != SAR_ABI_VERSION) {
    fprintf(stderr, "libsar has ABI %u, this program was compiled for %u\n", sar_abi_version(), SAR_ABI_VERSION);
    return 1;
  }
  make_graph();

  sar_session_config config = {.size = sizeof config, .rank = rank, .world = world,
                               .master_addr = getenv("MASTER_ADDR"), .master_port = atoi(getenv("MASTER_PORT")),
                               .transport = getenv("SAR_TRANSPORT"), .start_seconds = 30, .operation_seconds = 30};
  sar_handle session, graph;
  must(sar_transport_register(&sockets_transport), "registering a transport");
  must(sar_session_open(&config, &session), "meeting the others");

  /* Rank p owns the nodes start[p] .. start[p + 1], and knows the edges into them. */
  int64_t start[MOST_WORKERS + 1], start_shape[] = {world + 1};
  for (int p = 0; p <= world; p++) start[p] = (int64_t)NODES * p / world;
  int64_t first = start[rank], rows = start[rank + 1] - first, edge_shape[] = {rows * DEGREE};
  DLTensor node_start = integers(start, start_shape);
  DLTensor src = integers(source + first * DEGREE, edge_shape), dst = integers(target + first * DEGREE, edge_shape);
  must(sar_graph_from_edges(session, &node_start, &src, &dst, &graph), "building the graph");
  sar_relation_info info = {.size = sizeof info};
  must(sar_graph_relation_info(graph, 0, &info), "asking for sizes");

  message cases[] = {{0, "sum"}, {0, "mean"}, {1, "sum"}, {1, "mean"}};
  double worst = 0;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    double d = check(graph, &cases[i], first, rows);
    if (!(d <= worst)) worst = d;
  }

  /* The largest difference of all workers, so that all of them succeed or fail. */
  int64_t one[] = {1};
  DLTensor all = tensor(&worst, 1, one, 2, 64);
  must(sar_all_reduce(session, SAR_COMM_REDUCE, &all, SAR_MAX), "all-reduce");
  int good = worst < 1e-12;
  printf("rank %d of %d: %lld nodes, reads %lld rows of others, largest difference %.1e: %s\n", rank, world,
         (long long)info.num_dst, (long long)info.num_boundary, worst, good ? "OK" : "WRONG");
  must(sar_barrier(session, SAR_COMM_REDUCE), "barrier");
  must(sar_graph_free(graph), "freeing the graph");
  must(sar_session_close(session), "closing the session");
  return good ? 0 : 1;
}

/* ---- starting the workers ------------------------------------------------
 * The engine does not survive a fork, but exec gives each worker a process, and
 * with it an engine, of its own. */

static int free_port(void) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof address;
  int s = socket(AF_INET, SOCK_STREAM, 0);
  if (s < 0 || bind(s, (struct sockaddr *)&address, sizeof address) ||
      getsockname(s, (struct sockaddr *)&address, &length)) {
    perror("looking for a free port");
    exit(1);
  }
  close(s);
  return ntohs(address.sin_port);
}

static void put(const char *name, int value) {
  char text[16];
  snprintf(text, sizeof text, "%d", value);
  setenv(name, text, 1);
}

int main(int argc, char **argv) {
  if (getenv("RANK")) return worker();

  int workers = argc > 1 ? atoi(argv[1]) : 3;
  if (workers < 1 || workers > MOST_WORKERS) {
    fprintf(stderr, "usage: %s [workers, 1 to %d [transport]]\n", argv[0], MOST_WORKERS);
    return 2;
  }
  pid_t child[MOST_WORKERS];
  const char *transport = argc > 2 ? argv[2] : "tcp";
  setenv("SAR_TRANSPORT", transport, 1);
  put("WORLD_SIZE", workers);
  put("MASTER_PORT", free_port());
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  int failed = 0;
  for (int p = 0; p < workers; p++) {
    put("RANK", p);
    char *arguments[] = {argv[0], NULL};
    int error = posix_spawn(&child[p], "/proc/self/exe", NULL, NULL, arguments, environ);
    if (error) {
      fprintf(stderr, "starting worker %d: %s\n", p, strerror(error));
      failed = 1;
      workers = p; /* wait for those that run; they give up at their deadline */
    }
  }
  int left = workers;
  for (time_t end = time(NULL) + SECONDS; left > 0;) {
    int status;
    pid_t ended = waitpid(-1, &status, WNOHANG);
    if (ended > 0) {
      left--;
      failed += !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
      for (int p = 0; p < workers; p++)
        if (child[p] == ended) child[p] = 0;
    } else if (time(NULL) > end) {
      fprintf(stderr, "workers did not end within %d s\n", SECONDS);
      for (int p = 0; p < workers; p++)
        if (child[p]) kill(child[p], SIGKILL);
      end += SECONDS;
    } else {
      nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
  }
  if (!failed) printf("aggregate: OK, %d workers over %s, forward and backward as computed serially\n",
      workers, transport);
  return failed ? 1 : 0;
}
