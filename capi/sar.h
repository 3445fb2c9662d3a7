/* sar.h - C interface of SAR, full-batch training of graph neural networks on graphs that are
 * split over several workers.
 *
 * This file is the specification. Tests compare it with what the libraries export, and run every
 * error that it names.
 *
 * Calls
 *  - A function returns a sar_status unless it says otherwise: SAR_OK (0) on success. After a
 *    failure sar_last_error() gives the message of the calling thread, and sar_last_error_info()
 *    its parts.
 *  - "Collective" means that every worker of the session makes the same call in the same order.
 *  - A process that forks after its first call must not call from the child: the Go runtime does
 *    not survive a fork. Start workers by spawn or exec.
 *
 * Arguments
 *  - Objects are opaque non-zero handles. Any thread may use a handle. Operations on one
 *    communicator are issued by one thread at a time.
 *  - Tensors are DLPack's DLTensor on the CPU, contiguous and row-major (strides are NULL, or say
 *    the same). They belong to the caller and are not kept after the call returns.
 *  - "float" means float32 or float64. All float tensors of one call have the same type.
 *  - [n, w] is n rows of w numbers. More trailing dimensions count as one. [n, ..] is n rows of
 *    any shape.
 *  - Structs begin with their own size, so that they can grow.
 *  - A string that comes back through char** belongs to the caller, who frees it with
 *    sar_free_string. In descriptions of JSON, a name without a value stands for a number.
 *
 * Errors that any function may return, and that are not named with each
 *  - SAR_ERR_VALUE: a pointer is NULL that must not be; a handle is 0, of another kind, or of no
 *    object of this process; a tensor is not contiguous, or its shape is not the one described.
 *  - SAR_ERR_TYPE: a tensor is not on the CPU, or its dtype is not the one described.
 *  - SAR_ERR_CLOSED: the object was freed. SAR_ERR_SHUT_DOWN: its session was closed.
 *  - SAR_ERR_BUDGET: memory cannot be had, or the window holds no row of a tensor.
 *  - SAR_ERR_FORMAT and SAR_ERR_IO: of functions that read or write files.
 *  - SAR_ERR_PEER_LOST, SAR_ERR_REMOTE, SAR_ERR_SCHEDULE and SAR_ERR_TIMEOUT: of collective
 *    functions. They end the session, on every worker.
 *  - SAR_ERR_INTERNAL: a bug. The session can then only be closed.
 */
#ifndef SAR_H
#define SAR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SAR_ABI_VERSION 7u

/* ---- tensors: the layout of DLPack's DLTensor -------------------------- */

#ifndef DLPACK_DLPACK_H_
typedef struct {
  int32_t device_type; /* 1: CPU */
  int32_t device_id;
} DLDevice;

typedef struct {
  uint8_t code; /* 0 int, 1 uint, 2 float, 4 bfloat, 6 bool */
  uint8_t bits;
  uint16_t lanes;
} DLDataType;

typedef struct {
  void *data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape;
  int64_t *strides; /* in elements, or NULL for contiguous */
  uint64_t byte_offset;
} DLTensor;
#endif

/* ---- status ------------------------------------------------------------ */

typedef int32_t sar_status;
enum {
  SAR_OK = 0,
  SAR_ERR_VALUE = 1,       /* shape, size or range of an argument */
  SAR_ERR_TYPE = 2,        /* dtype or device of a tensor */
  SAR_ERR_FORMAT = 3,      /* a damaged file */
  SAR_ERR_PEER_LOST = 4,   /* a worker died, was stopped or cut off */
  SAR_ERR_REMOTE = 5,      /* another worker failed; the message carries its error */
  SAR_ERR_SCHEDULE = 6,    /* workers disagree about what comes next */
  SAR_ERR_BUDGET = 7,      /* a memory budget cannot be met */
  SAR_ERR_TIMEOUT = 8,     /* a deadline passed */
  SAR_ERR_CLOSED = 9,      /* the handle is closed */
  SAR_ERR_IO = 10,         /* the operating system refused */
  SAR_ERR_INTERNAL = 11,   /* a bug in the engine */
  SAR_ERR_RENDEZVOUS = 12, /* workers could not meet */
  SAR_ERR_STOPPED = 13,    /* a callback of the caller asked for it */
  SAR_ERR_SHUT_DOWN = 14   /* the session that an object belongs to was closed */
};

typedef struct {
  size_t size; /* in: sizeof(sar_error_info) */
  sar_status status;
  int32_t rank;         /* the rank concerned, -1 where there is none */
  const char *message;  /* the whole message */
  const char *host;     /* PEER_LOST: host of the rank, else "" */
  const char *phase;    /* PEER_LOST: what the rank was last known to do, else "" */
  const char *file;     /* FORMAT: the file, else "" */
  int64_t offset;       /* FORMAT: byte offset, -1 where unknown */
  int64_t minimum;      /* BUDGET: the smallest budget that can be met, else 0 */
  int32_t error_number; /* IO: errno, e.g. ENOENT for a missing file; 0 where there is none */
} sar_error_info;

uint32_t sar_abi_version(void);

/* The version of the engine, static. */
const char *sar_version(void);

/* The message of the calling thread's last failure, valid until its next call. */
const char *sar_last_error(void);

/* Its parts. The strings are valid until the thread's next call. */
void sar_last_error_info(sar_error_info *out);

void sar_free_string(char *s);

/* ---- process ----------------------------------------------------------- */

/* Kernel threads of this process. At first there are as many as the process may use CPUs.
 * Errors: SAR_ERR_VALUE for n below 1. */
sar_status sar_set_num_threads(int32_t n);
int32_t sar_get_num_threads(void);

/* What kernels use, static: "scalar", "avx2" or "neon". */
const char *sar_simd(void);

/* The engine's memory by purpose, in bytes. JSON:
 *   {"structure": {"live", "peak"}, "features": .., "window": .., "scratch": .., "runtime": ..,
 *    "mapped": .., "total": .., "tensors": .., "kept": .., "resident": ..}
 * "runtime" is what Go holds of the operating system, as this call finds it. "mapped" is the
 * addresses of mapped features, whether in memory or not; total leaves it out. "tensors" and
 * "kept" are those of the pool (sar_set_allocator), "resident" is the process as a whole. */
sar_status sar_memory_stats(char **json);

/* Lowers every peak to what is live. */
void sar_reset_peaks(void);

/* What becomes of freed blocks of 256 KiB and more. Each call gives back what is kept.
 *  - COMPACT: glibc gives them back at once (mallopt).
 *  - POOL: as COMPACT, but those of torch's CPU tensors are kept, as long as what is in use and
 *    what is kept stay within what was in use at the busiest moment since the call.
 *  - DEFAULT: puts glibc's own rule back as far as it can.
 * Errors: SAR_ERR_VALUE for any other policy; SAR_ERR_INTERNAL for POOL without torch. */
enum { SAR_ALLOCATOR_DEFAULT = 0, SAR_ALLOCATOR_COMPACT = 1, SAR_ALLOCATOR_POOL = 2 };
sar_status sar_set_allocator(int32_t policy);

/* Torch's large blocks and the engine's under the pool, in bytes. JSON: {"live", "kept", "peak",
 * "fresh"}; "fresh" is what was handed out in all that was not there yet. */
sar_status sar_pool_stats(char **json);

/* Puts the next large block that torch asks for on this thread where so many bytes behind it are
 * free. A call that rounds its result or a gradient into a tensor there computes it where the
 * tensor lies and in what is behind it, and so needs no memory of its own for that. */
void sar_pool_room(uint64_t size);

/* Gives back what the pool keeps. Its peak starts anew. */
void sar_pool_trim(void);

/* ---- session: one worker among several --------------------------------- */

typedef uint64_t sar_handle;

typedef struct {
  size_t size;
  int32_t rank, world;        /* 0 <= rank < world */
  const char *master_addr;    /* where rank 0 listens; ignored for world 1 */
  int32_t master_port;
  const char *interface_name; /* network interface whose address peers use; NULL or "": the route
                               * to the master */
  const char *transport;      /* "shm", "tcp", one registered, or NULL, "" or "auto": shm on one
                               * host, else tcp */
  const char *advertise;      /* host:port that peers connect to in place of the listener's own,
                               * or NULL */
  double start_seconds;       /* deadline of the rendezvous; 0: 300 */
  double liveness_seconds;    /* a worker unheard of for so long is lost; 0: 20 */
  double operation_seconds;   /* deadline of any one operation; 0: 1800 */
  int64_t window_bytes;       /* receive buffers, rings and send staging together; 0: see
                               * sar_default_window */
  const char *job_token;      /* secret of the job, see below */
  int32_t insecure;           /* 1: without a token anybody may join who reaches the ports */
  int32_t tls;                /* 1: TCP connections run under TLS 1.3; the same on every worker */
  int32_t first_port, last_port; /* ports to listen on, both included; 0 and 0: any. Rank 0
                                  * listens at master_port alone */
} sar_session_config;

/* Meets the other workers. Collective.
 *
 * job_token is the same on every worker, of at least 16 characters: who connects proves that it
 * has it. NULL or "": where no address of the job can be reached from other hosts, one made of a
 * secret of this user (sar_job_token); else opening fails, unless insecure is set.
 *
 * Errors: SAR_ERR_VALUE for a rank, a duration or a window that cannot be; SAR_ERR_BUDGET for a
 * window that is too small for so many workers; SAR_ERR_RENDEZVOUS for a transport that is not
 * known, a token that is too short, and where the master cannot be reached, the port is in use, or
 * two workers have one rank. */
sar_status sar_session_open(const sar_session_config *config, sar_handle *session);

/* Tells the peers that this worker is leaving, and frees everything. Calls in progress fail. Not
 * collective: peers that still wait for this rank get SAR_ERR_PEER_LOST. */
sar_status sar_session_close(sar_handle session);

/* Tells every peer that this rank failed: their current and later calls end with SAR_ERR_REMOTE,
 * which carries the message. */
sar_status sar_session_abort(sar_handle session, const char *message);

/* Small values that rank 0 keeps for all workers by name, until it closes the session: for what
 * they have to tell each other outside of collective calls. Not collective: rank 0 need not be in
 * a call.
 *   request: {"op": name, "key": name, "value": bytes, "old": bytes, "add"}, bytes in base64
 *   json: {"there": whether there was such a value, "value": bytes or null, "number"}
 *  - "get" gives the value; "set" makes value it; "delete" removes it.
 *  - "add" adds to a value that is a number in decimal digits, none being 0, and gives the sum.
 *  - "swap" sets value where the value was old, none being "", and gives what is there then.
 *  - "count" gives the number of values.
 * Errors: SAR_ERR_VALUE for another op, and for more than 1 MiB. */
sar_status sar_session_value(sar_handle session, const char *request, char **json);

/* A job token made of what is no secret, such as the number of a job at a scheduler, and a secret
 * that only this user can read: ~/.config/sar/secret, or SAR_SECRET_FILE, made when it is first
 * needed. The same for all processes that share it.
 * Errors: SAR_ERR_VALUE where others can read the secret. */
sar_status sar_job_token(const char *public_id, char **token);

/* Says what the operations on SAR_COMM_TRAIN that begin from now on belong to, as far as their
 * arguments do not show it. It travels in their frames at no cost, so ranks that run operations of
 * equal rows in another order get SAR_ERR_SCHEDULE in place of wrong numbers.
 *  - layer: number of the layer that runs them, the same on every rank; 0: not known, which goes
 *    with any.
 *  - of: in backward, the number of the forward operation that they belong to, else 0.
 *  - name: what messages call them, or NULL.
 *  - number: out, that of the next operation.
 * Errors: SAR_ERR_VALUE for a layer of 4096 or more. */
sar_status sar_session_set_place(sar_handle session, uint32_t layer, uint64_t of,
                                 const char *name, uint64_t *number);

/* What messages call a layer. */
sar_status sar_session_name_layer(sar_handle session, uint32_t layer, const char *name);

/* A new window, from the next graph operation on, exact to the byte; 0: one that the session sizes
 * itself. What is told as the most held of it begins anew. Collective.
 * Errors: SAR_ERR_VALUE for a negative one; SAR_ERR_BUDGET for one that is too small for so many
 * workers. */
sar_status sar_session_set_window(sar_handle session, int64_t window_bytes);

/* The window, in bytes, that a session of so many workers gives itself once it holds a graph of
 * which no worker owns more than so many nodes: 4 to 16 MiB, and among many workers more, for
 * frames of 256 KiB. Samplers, and rows that no frame would hold, have it take at least 16 MiB. */
int64_t sar_default_window(int32_t world, int64_t nodes);

/* Who computes gradients of edge expressions over edges between two workers, where backward reads
 * values of sources. Every rank must choose the same.
 *  - PULL: the reader of the sources. It fetches them again and sends their gradients back.
 *  - PUSH: their owner. Readers send it the rows of destinations. Where the program reads nothing
 *    of edges.
 *  - AUTO, at first: what is cheaper, for each pair of workers (links of sar_session_stats).
 * Errors: SAR_ERR_VALUE for any other choice. */
enum { SAR_EXCHANGE_AUTO = 0, SAR_EXCHANGE_PULL = 1, SAR_EXCHANGE_PUSH = 2 };
sar_status sar_session_set_exchange(sar_handle session, int32_t exchange);

/* The largest of what workers held, by the names of sar_memory_stats. Not collective: it waits at
 * most so long for the others to close their sessions, since that brings their last figures. JSON:
 *   {"peaks": {name: bytes, ..}, "workers"}, the latter how many are known of.
 * Errors: SAR_ERR_REMOTE or SAR_ERR_PEER_LOST where the session failed. */
sar_status sar_session_memory(sar_handle session, double wait_seconds, char **json);

/* What the session has done so far. JSON:
 *   {"rank", "world",
 *    "peers": [{"rank", "host": name, "pid", "transport": name}, ..],
 *    "window": {"limit", "live", "peak"},
 *    "links": [{"peer", "communicator": name, "transport": name,
 *               "sent_payload", "sent_bytes", "sent_frames",
 *               "recv_payload", "recv_bytes", "recv_frames",
 *               "sent_pulled", "sent_home", "sent_pushed", "wait_seconds"}, ..],
 *    "operations": {kind: {"count", "seconds", "wait_seconds", "sent_bytes", "recv_bytes"}, ..}}
 * The window's peak is since it has that limit. wait_seconds were spent blocked on the link. */
sar_status sar_session_stats(sar_handle session, char **json);

/* ---- transports that are libraries of others --------------------------- */

/* A network library carries the frames between workers where it is registered as a transport, by
 * the table of functions below, and SAR_TRANSPORT, or sar_session_config.transport, gives its
 * name. It moves messages. All else is the engine's: deadlines, signs of life, the end of a peer,
 * the order of frames, how much may be on its way, and errors.
 *
 * Two workers that are to be linked have a TCP connection over which both have proved that they
 * belong to the job. Over it the engine tells each the other's address; the first messages of a
 * link are that proof once more. TLS does not reach this far: with it such a transport is refused.
 *
 * Workers and links. An opened worker is what one rank has of the library; a process may hold
 * several. A link joins it to one peer, for one communicator, in both directions. What open,
 * register_memory and connect give is whatever the library knows it by; the engine hands it back
 * unread.
 *
 * Messages. The k-th message that a side sends over a link goes to the k-th receive that the other
 * side posts on it, and both have the same size, 1 byte to 1 GiB. Sends and receives are posted
 * ahead of each other in any order, and at most SAR_TRANSPORT_POSTED of each are outstanding on a
 * link. A send may wait until its receive is posted, or be buffered; the engine sends no more
 * ahead than the window has room for at the receiver.
 *
 * Completion. send and receive post a request and return at once: they wait neither for the peer
 * nor for the network. Every request is completed by one call of done, as soon as the library no
 * longer touches the buffer. A send is complete when its buffer may be changed, a receive when its
 * bytes are there. Statuses: SAR_OK; SAR_ERR_PEER_LOST where the peer is gone; SAR_ERR_CLOSED after
 * disconnect; any other for other failures. What is posted on a link after a request has failed may
 * fail too; the engine disconnects it in the end. done may be called by any thread, in any order,
 * also before send or receive return. It returns at once and calls nothing of the table, so that
 * locks may be held.
 *
 * Progress. Nothing of the table is called to make progress: a library that needs that has a thread
 * of its own, which sleeps while nothing happens and has all signals blocked. An installed signal
 * handler belongs to the Go runtime and stays as it is.
 *
 * Threads. On one link one thread at a time calls send, one at a time receive, and both may at
 * once; disconnect comes when both have returned. Calls for different links, and connect,
 * register_memory and unregister_memory, may run at once. close comes when every other call has
 * returned and every request is complete.
 *
 * Disconnecting. disconnect returns at once. It ends every outstanding request: done is called for
 * each, maybe later, when the library no longer touches its buffer, and then the library frees the
 * link. The engine keeps the buffers until then; buffers of the caller's are given to a library
 * only that sets SAR_TRANSPORT_REVOKES. Before a link that has not failed is disconnected both
 * engines have made sure that everything has arrived.
 *
 * text is for SAR_TRANSPORT_TEXT bytes, terminated by 0: why a function failed, and what to do
 * about it. */
enum { SAR_TRANSPORT_ADDRESS = 4096, SAR_TRANSPORT_TEXT = 512, SAR_TRANSPORT_POSTED = 256 };
enum {
  /* After disconnect every request is complete within a second, whatever the peer does, and no
   * receive succeeds whose send does not. The engine then has payloads sent straight from, and
   * received straight into, tensors of its callers; else through memory of its own alone. */
  SAR_TRANSPORT_REVOKES = 1u
};

/* Completes a request. text says what went wrong; NULL and "" where nothing did. */
typedef void (*sar_transport_done)(uint64_t request, sar_status status, const char *text);

typedef struct {
  size_t size;
  int32_t rank, world; /* this worker's number, and how many there are */
  sar_transport_done done;
} sar_transport_worker;

typedef struct {
  size_t size;
  int32_t rank;           /* the peer's */
  const uint8_t *address; /* what the peer's open gave; gone when connect returns */
  size_t address_bytes;
  /* Numbers for native tags, 1 and up. No other link that this process has made, in whatever
   * worker, receives with this receive_tag, nor does a link of the peer's process with this
   * send_tag: each is the other one's at the peer. */
  uint32_t send_tag, receive_tag;
} sar_transport_peer;

typedef struct {
  size_t size;
  const char *name; /* what users ask for: 1 to 15 of a-z, 0-9 and _, first a letter */
  void *user;       /* given to probe and open */
  uint32_t flags;   /* SAR_TRANSPORT_REVOKES */
  /* What a byte takes, in nanoseconds of computation that could be done in place of it, copies at
   * both ends included; the same on every worker. 0: as over TCP. */
  double byte_cost;
  /* Whether the library can be used here, without opening it for longer than the call. text: what
   * it uses, for people, such as "rc_mlx5/mlx5_0:1". automatic: 1 where it is to be chosen without
   * being asked for, because it is faster here than TCP; every session that is told no transport
   * asks for that alone, with text NULL, and wants a quick answer. NULL: the library can be used,
   * and is chosen only where asked for. */
  sar_status (*probe)(void *user, int32_t *automatic, char *text);
  /* Opens a worker, and writes the address by which the library reaches it from peers: at most
   * SAR_TRANSPORT_ADDRESS bytes, and how many. Such as a worker address, or the rank in a world of
   * the library's own. */
  sar_status (*open)(void *user, const sar_transport_worker *about, void **worker,
                     uint8_t *address, size_t *address_bytes, char *text);
  void (*close)(void *worker);
  /* Makes memory of the engine's, in which most messages begin and end, ready for the network.
   * Both may be NULL. */
  sar_status (*register_memory)(void *worker, void *base, size_t bytes, void **memory, char *text);
  void (*unregister_memory)(void *worker, void *memory);
  /* Makes a link. Returns at once: it may come about while the first messages travel, and fail
   * with them. */
  sar_status (*connect)(void *worker, const sar_transport_peer *peer, void **link, char *text);
  /* memory: what register_memory gave for memory that holds all of buffer, else NULL. */
  void (*send)(void *link, const void *buffer, size_t bytes, void *memory, uint64_t request);
  void (*receive)(void *link, void *buffer, size_t bytes, void *memory, uint64_t request);
  void (*disconnect)(void *link);
} sar_transport;

/* Makes a transport known to the sessions that are opened later. The struct and its name are
 * copied; user and the functions are there as long as the process.
 * Errors: SAR_ERR_VALUE for a name that is no such word or taken, and for a missing function. */
sar_status sar_transport_register(const sar_transport *transport);

/* A file to open for "ucx" or "mpi", which are transports of SAR's own, where no variable
 * (SAR_UCX_LIB, SAR_MPI_LIB) names one and the system has none. It counts until the library is
 * open.
 * Errors: SAR_ERR_VALUE for any other name. */
sar_status sar_transport_library(const char *name, const char *file);

/* What a registered transport, or "ucx" or "mpi", would use here, for people.
 * Errors: SAR_ERR_VALUE, with the reason, where it cannot be used. */
sar_status sar_transport_probe(const char *name, char **uses);

/* ---- collectives ------------------------------------------------------- */

/* A communicator orders operations; operations of two of them may overlap. TRAIN is for message
 * passing, REDUCE for gradients and everything else. */
enum { SAR_COMM_TRAIN = 0, SAR_COMM_REDUCE = 1 };

/* Makes a further one out of the window. Collective.
 * Errors: SAR_ERR_VALUE for more than 8 of them. */
sar_status sar_comm_create(sar_handle session, const char *name, int32_t *comm);

/* The next five are collective.
 * Errors of each: SAR_ERR_VALUE for a communicator that the session has not. */

/* Reduces a tensor over all ranks in place, to the same bits everywhere: float64, float32, float16,
 * bfloat16, int64, int32, uint8, or bool, whose sum is "or".
 * Errors: SAR_ERR_VALUE for any other op. */
enum { SAR_SUM = 0, SAR_MIN = 1, SAR_MAX = 2, SAR_PROD = 3, SAR_AVG = 4 };
sar_status sar_all_reduce(sar_handle session, int32_t comm, DLTensor *tensor, int32_t op);

/* Overwrites a tensor of any dtype with that of rank root.
 * Errors: SAR_ERR_VALUE for a root that is no rank. */
sar_status sar_broadcast(sar_handle session, int32_t comm, DLTensor *tensor, int32_t root);

/* Returns once every rank has called it. */
sar_status sar_barrier(sar_handle session, int32_t comm);

/* send[q] goes to rank q, recv[q] comes from it. Any dtype; sizes in bytes must match pairwise.
 * Errors: SAR_ERR_VALUE where n is not the number of workers, or sizes do not match. */
sar_status sar_all_to_all(sar_handle session, int32_t comm, const DLTensor *send, DLTensor *recv,
                          int32_t n);

/* Sends to one rank while receiving from another; -1 for neither. Every rank calls it, at the same
 * place of the order, with peers of its own.
 * Errors: SAR_ERR_VALUE for a peer that is no rank, or this one in one direction alone. */
sar_status sar_exchange_pair(sar_handle session, int32_t comm, int32_t send_to,
                             const DLTensor *send, int32_t recv_from, DLTensor *recv);

/* ---- partitions on disk: SAR's format and DGL's ------------------------ */

/* Flags: the JSON may name files outside its own directory. */
enum { SAR_PARTITION_OUTSIDE = 1 };

/* Opens one part of a partitioned graph. Headers are held against the checksums that the partition
 * has now, arrays when they are read.
 * Errors: SAR_ERR_VALUE for a part that is not there, and for other flags; SAR_ERR_IO for a file
 * that is missing; SAR_ERR_FORMAT for one that is damaged. */
sar_status sar_partition_open(const char *json_path, int32_t part, uint32_t flags,
                              sar_handle *partition);

sar_status sar_partition_close(sar_handle partition);

/* Reads all files of a partition and tells what is wrong with them. JSON:
 *   [{"file": path, "bytes", "arrays", "checksums": bool, "damage": [text, ..]}, ..]
 * "checksums" is true where every byte was held against one. Damage is no error of the call, nor is
 * a file that cannot be read.
 * Errors: SAR_ERR_VALUE for flags that are not there. */
sar_status sar_partition_verify(const char *json_path, int32_t part, uint32_t flags, char **json);

/* JSON, with homogenized ids:
 *   {"graph_name": name, "num_parts", "part",
 *    "node_types": [name, ..], "edge_types": [[src, rel, dst], ..],
 *    "node_ranges": {node type: [[start, end], .. by part], ..},
 *    "edge_ranges": {"src:rel:dst": [[start, end], ..], ..},
 *    "node_features": [{"name": "type/feature", "dtype": name, "shape": [n, ..]}, ..],
 *    "edge_features": [..],
 *    "num_inner_nodes", "num_local_nodes", "num_local_edges", "num_inner_edges", "bytes",
 *    "ids": {node type: file, ..}}
 * "ids" are Parquet files of the users' ids of own nodes. */
sar_status sar_partition_info(sar_handle partition, char **json);

/* Reads a feature of nodes, or with edge 1 of edges, into a tensor of its shape and dtype. A bool
 * tensor may be read from uint8.
 * Errors: SAR_ERR_VALUE for a feature that is not there; SAR_ERR_TYPE for another dtype. */
sar_status sar_partition_read(sar_handle partition, int32_t edge, const char *name, DLTensor *out);

/* Maps a feature of one number or more in place of a copy: its address, and a handle of its own,
 * which lives on when the partition is closed.
 *
 * The memory may be written to: that makes private copies of its pages, and changes no file. Where
 * the partition has checksums, the whole feature is held against them. A feature of DGL's format
 * that begins at no multiple of 64 bytes is copied to a file without a name beside its own. The
 * file must keep its size: to touch what was cut off kills the process.
 * Errors: SAR_ERR_VALUE for a feature that is not there or has no numbers. */
sar_status sar_partition_map(sar_handle partition, int32_t edge, const char *name,
                             uint64_t *address, sar_handle *map);

/* Reads n bytes, from byte first after the address on, into a window of n + 8192 bytes, past the
 * page cache where the file system can do that. at: the byte of the window where they begin, on
 * the same byte of 64 as in the map; -1: nothing was read, since the map is as good: the page cache
 * has them, or memory that was written to. A file that became shorter is SAR_ERR_FORMAT.
 * Errors: SAR_ERR_VALUE for bytes outside the map. */
sar_status sar_map_read(sar_handle map, int64_t first, int64_t n, DLTensor *window, int64_t *at);

/* Unmaps it: the memory is gone. */
sar_status sar_map_close(sar_handle map);

/* How many in-edges of one relation the worker has.
 * Errors: SAR_ERR_VALUE for a relation that is not there. */
sar_status sar_partition_count_edges(sar_handle partition, int32_t relation, int64_t *n);

/* These edges, in ascending edge id: int64 homogenized ids, [n] each. Any of the three may be NULL.
 * Errors: SAR_ERR_VALUE for a relation that is not there. */
sar_status sar_partition_edges(sar_handle partition, int32_t relation, DLTensor *src,
                               DLTensor *dst, DLTensor *id);

/* ---- making partitions ------------------------------------------------- */

/* Hears how far a step is, now and then. It may be NULL. What it returns other than 0 ends the
 * step, with SAR_ERR_STOPPED. */
typedef int32_t (*sar_progress)(void *user, int64_t done, int64_t total);

/* Writes checksums.crc into a graph directory (graph.json and .npy files), names it in graph.json,
 * and gives that a checksum of its own. What is read of the directory is held against them.
 * Errors: SAR_ERR_FORMAT where there is no such directory. */
sar_status sar_graph_directory_sum(const char *dir);

/* JSON: a report on each file of a graph directory, as sar_partition_verify gives it. */
sar_status sar_graph_directory_verify(const char *dir, char **json);

/* Opens a graph directory, all parts of a partitioned graph (its .json), or an .npz file.
 * Errors: SAR_ERR_IO for a file that is missing; SAR_ERR_FORMAT for one that is damaged. */
sar_status sar_dataset_open(const char *path, sar_handle *dataset);

sar_status sar_dataset_close(sar_handle dataset);

/* Gives every node that lacks one an edge to itself; they come after the edges of the file. For
 * graphs of one type without edge arrays, before any other call that reads the data set; not while
 * another thread uses it.
 * Errors: SAR_ERR_VALUE for other graphs. */
sar_status sar_dataset_add_self_loops(sar_handle dataset);

/* JSON: {"num_nodes", "num_edges",
 *   "node_types": [{"name": name, "rows"}, ..], "edge_types": [..],
 *   "node_arrays": [{"name": name, "dtype": name, "shape": [n, ..]}, ..], "edge_arrays": [..],
 *   "ignored": [name, ..], "ids": {node type: file, ..}}
 * Nodes are numbered over all types, one type after the other. Where there are several types, names
 * of arrays are "type/name". */
sar_status sar_dataset_info(sar_handle dataset, char **json);

/* Undirected adjacency without self loops, as METIS wants it, after sar_dataset_undirect. A first
 * call with adjncy NULL gives its length; then xadj int64 [n + 1], adjncy int64 or int32 [length].
 * Errors: SAR_ERR_VALUE before sar_dataset_undirect, and for arrays of other lengths. */
sar_status sar_dataset_adjacency(sar_handle dataset, DLTensor *xadj, DLTensor *adjncy,
                                 int64_t *length);

/* A part for every node: assignment int32 [num_nodes]. Methods: "random" (equal sizes),
 * "contiguous" (equal in-edges) and "stored" (that of a partitioned graph).
 * Errors: SAR_ERR_VALUE for another method, no parts, or "stored" of a graph that is whole. */
sar_status sar_dataset_assign(sar_handle dataset, const char *method, int32_t parts, uint64_t seed,
                              DLTensor *assignment);

/* Judges an assignment. JSON:
 *   {"edge_cut", "edge_cut_fraction", "nodes": [n, .. by part], "edges": [n, ..],
 *    "node_balance", "edge_balance",
 *    "boundary": [[rows that p reads of q, .. by q], .. by p],
 *    "between": [[edges from q to p, .. by q], .. by p]}
 * Errors: SAR_ERR_VALUE for a part below 0, or of parts or more. */
sar_status sar_dataset_quality(sar_handle dataset, const DLTensor *assignment, int32_t parts,
                               char **json);

/* Weights of nodes, int32 [num_nodes]: of what "edges", its in-edges; of "train", 1 where its
 * feature train_mask is not 0.
 * Errors: SAR_ERR_VALUE for any other. */
sar_status sar_dataset_weights(sar_handle dataset, const char *what, DLTensor *weights);

/* Prepares the next two: the graph without directions, loops and repetitions. A graph of one type
 * on disk whose edges all go both ways serves as it is. Any other is sorted into files without
 * names in the directory scratch, with memory bytes and 8 a node. Where outward is not 0, those
 * have each edge at its source alone, which sar_dataset_parhip can write.
 * Errors: SAR_ERR_IO where it cannot write there; SAR_ERR_STOPPED by progress. */
sar_status sar_dataset_undirect(sar_handle dataset, const char *scratch, int64_t memory,
                                int32_t outward, sar_progress progress, void *user);

/* Streaming partitioner. assignment int32 [num_nodes] is -1 - g before for a node of group g, of
 * groups with parts/groups parts each; after, its part. No part is heavier than the mean by more
 * than imbalance (a share) where that can be, by any of the weights: int32 [kinds, num_nodes], or
 * NULL: each node weighs 1. Where rows is not 0, few rows are to travel, each once to each part
 * that reads it; else few edges are to be between parts.
 * Errors: SAR_ERR_VALUE for parts that groups do not divide, or without sar_dataset_undirect;
 * SAR_ERR_STOPPED by progress. */
sar_status sar_dataset_fennel(sar_handle dataset, int32_t parts, int32_t groups, double imbalance,
                              uint64_t seed, int32_t rows, const DLTensor *weights,
                              DLTensor *assignment, sar_progress progress, void *user);

/* Writes the graph to an existing file in ParHIP's binary format, with weights (int32 [num_nodes])
 * where they are not NULL; of an assignment that is not NULL, the nodes of one part. Gives the
 * numbers of nodes and of neighbours in the file.
 * Errors: SAR_ERR_IO for a file that is not there; SAR_ERR_VALUE without sar_dataset_undirect. */
sar_status sar_dataset_parhip(sar_handle dataset, const char *path, const DLTensor *weights,
                              const DLTensor *assignment, int32_t part, int64_t *nodes,
                              int64_t *neighbours);

/* Writes the parts of an assignment, int32 [num_nodes]: <dir>/<name>.json and part<i>/. JSON of
 * options:
 *   {"name": name, "method": name, "format": "sar" or "dgl", "features": "" or "bfloat16",
 *    "memory", "ids": {node type: file, ..}, "ids_dir": path}
 * "memory" is what writing may take, the assignment among it; 0: 4 GiB. Files of the users' ids,
 * <ids_dir>/part<i>/<file>, are moved into the parts.
 * "format" is "dgl" where it is not there. With "features", features of nodes in two or more
 * dimensions, float32 or float64, are rounded to it.
 * Errors: SAR_ERR_VALUE for a part below 0, or of parts or more, and for options that are no such
 * JSON or name another format; SAR_ERR_BUDGET for less memory than it takes; SAR_ERR_STOPPED by
 * progress. */
sar_status sar_dataset_write_parts(sar_handle dataset, const DLTensor *assignment, int32_t parts,
                                   const char *dir, const char *options, sar_progress progress,
                                   void *user);

/* The least "memory" with which parts of equal sizes can be written, in the format "sar" or "dgl".
 * Errors: SAR_ERR_VALUE for no parts. */
sar_status sar_dataset_least_memory(sar_handle dataset, int32_t parts, const char *format,
                                    int64_t *bytes);

/* ---- graphs ------------------------------------------------------------ */

/* Flags: keep the order of edges from the start; else it is made when it is first needed. */
enum { SAR_GRAPH_EDGE_DATA = 1 };

/* The worker's part of the whole graph, from its partition, which may be closed afterwards.
 * Collective.
 * Errors: SAR_ERR_VALUE for a partition of another rank or number of workers, and for other
 * flags. */
sar_status sar_graph_build(sar_handle session, sar_handle partition, uint32_t flags,
                           sar_handle *graph);

/* The same for one relation from memory. Collective.
 *  - node_start int64 [world + 1]: the ranges of node ids that each rank owns.
 *  - src, dst int64 [n]: the in-edges of own nodes, in the order in which edge tensors follow.
 * Errors: SAR_ERR_VALUE for ranges that descend, ends that are no nodes, and edges into nodes of
 * other ranks. */
sar_status sar_graph_from_edges(sar_handle session, const DLTensor *node_start,
                                const DLTensor *src, const DLTensor *dst, sar_handle *graph);

/* The same for several node types and relations. Collective.
 *  - types is JSON: {"node_types": [name, ..], "edge_types": [[src, rel, dst], ..]}.
 *  - node_counts int64 [node types, world]: the nodes of each type that each rank owns.
 *  - src[i], dst[i] int64 [n_i]: the in-edges of own nodes of relation i, for i < n, in homogenized
 *    ids: all nodes of rank 0 first, in each rank one type after the other.
 * Errors: SAR_ERR_VALUE for types that are no such JSON, another n than there are edge types, and
 * as sar_graph_from_edges. */
sar_status sar_graph_from_relations(sar_handle session, const char *types,
                                    const DLTensor *node_counts, const DLTensor *src,
                                    const DLTensor *dst, int32_t n, sar_handle *graph);

/* Waits for operations in progress. */
sar_status sar_graph_free(sar_handle graph);

sar_status sar_graph_num_relations(sar_handle graph, int32_t *n);

/* Of this worker, where nothing else is said. */
typedef struct {
  size_t size;
  int64_t num_src, num_dst, num_edges;
  int64_t num_src_global, num_dst_global, num_edges_global;
  int64_t num_boundary; /* rows this worker reads of its peers */
  int64_t num_send;     /* rows its peers read of it, with repetition */
  int64_t structure_bytes;
} sar_relation_info;

/* Errors, here and wherever a relation is asked for: SAR_ERR_VALUE for one that is not there. */
sar_status sar_graph_relation_info(sar_handle graph, int32_t relation, sar_relation_info *out);

/* JSON: [{"peer", "receive_rows", "send_rows", "cover_rows", "cover_sums"}, ..]. The last two are
 * what a sum over edges receives: rows, and partial sums in place of the other rows, where these
 * are fewer. */
sar_status sar_graph_boundary(sar_handle graph, int32_t relation, char **json);

/* Own source rows that a peer reads, in the order in which they travel: out int64 [send_rows of
 * sar_graph_boundary].
 * Errors: SAR_ERR_VALUE for a peer that is no other rank. */
sar_status sar_graph_send_rows(sar_handle graph, int32_t relation, int32_t peer, DLTensor *out);

/* In-degrees, int64 [num_dst]; or with out_degrees 1, out-degrees over all workers,
 * int64 [num_src]. */
sar_status sar_graph_degrees(sar_handle graph, int32_t relation, int32_t out_degrees,
                             DLTensor *out);

/* ---- blocks (message-flow graphs) -------------------------------------- */

/* The edges of graph into some of its own rows, the seeds, as a graph of its own in which they are
 * the destination rows. It does not need graph any more. Node types and relations are those of
 * graph, rows are numbered per type, degrees are those within the block. Collective.
 *  - seeds int64 [n]: own rows of graph, each once, one type after the other. A worker may have
 *    none.
 *  - seed_start int64 [node types + 1]: where each type begins in seeds.
 *  - Source rows of a node type are all rows that any worker reads over those edges, ascending;
 *    with keep_seeds the seeds of the type come first, in their order.
 * Wire: 4 bytes a boundary row.
 * Errors: SAR_ERR_VALUE for seeds that are no own rows or there twice, and for a graph that is a
 * block. */
sar_status sar_graph_block(sar_handle graph, const DLTensor *seeds, const DLTensor *seed_start,
                           int32_t keep_seeds, sar_handle *block);

/* How many source rows (dst 0) or destination rows (1) of each node type a block has:
 * out int64 [node types].
 * Errors, here and in the next two: SAR_ERR_VALUE for a graph that is no block. */
sar_status sar_graph_block_counts(sar_handle block, int32_t dst, DLTensor *out);

/* Which own rows of the graph they are: out int64 [count of the type].
 * Errors: SAR_ERR_VALUE for a node type that is not there. */
sar_status sar_graph_block_rows(sar_handle block, int32_t node_type, int32_t dst, DLTensor *out);

/* For every edge of a block, in the order of its edge tensors, the position of that edge in the
 * order of the graph it was made of: out int64 [num_edges]. Ascends. */
sar_status sar_graph_block_edges(sar_handle block, int32_t relation, DLTensor *out);

/* ---- visits of in-edges ------------------------------------------------ */

/* Some in-edges of own rows, with the rows that they read. */
typedef struct {
  size_t size;
  int32_t peer;            /* whose rows these are */
  int64_t num_rows;        /* n */
  const void *const *rows; /* by field: [n, ..], contiguous, aligned to 8 bytes; gone when visit
                            * returns */
  void *const *grads;      /* by field: where to add gradients of the rows, zero before the first
                            * block of the same rows; NULL: none wanted */
  int64_t num_edges;       /* m: so many places of src, dst and edge are filled */
} sar_stream_block;

/* Returns 1 to go on. Anything else ends the stream and, as any failure, the session. */
typedef int32_t (*sar_stream_visit)(void *user, const sar_stream_block *block);

typedef struct {
  size_t size;
  int32_t relation;
  uint32_t flags;         /* 16 bits that every rank is told */
  int32_t num_fields;
  const DLTensor *fields; /* [num_fields] of [num_src, ..], any dtypes; the same shapes and dtypes
                           * on every rank */
  const uint8_t *home;    /* [num_fields]: 1: its gradient returns (float); the same on every rank.
                           * NULL: none does */
  DLTensor *grads;        /* [num_fields]: to add to; shape and dtype of the field; data NULL where
                           * this rank wants none. NULL: it wants none */
  /* int64 [k], k >= 1 the most edges of a block: row in the block, own destination row (ascends in
   * a block), position among own edges in ascending id. edge may be NULL */
  DLTensor *src, *dst, *edge;
  sar_stream_visit visit;
  void *user;
} sar_stream;

/* Visits every in-edge of own rows once, on the calling thread: first those from own rows, then
 * those from each peer's rows as they arrive. agreed: all ranks' flags. Collective, on
 * SAR_COMM_TRAIN. Wire: per boundary row its fields, each padded to 8 bytes, and the same back for
 * those with a gradient.
 * Errors: SAR_ERR_VALUE for flags of more than 16 bits, without visit, and where visit returns
 * anything but 1. */
sar_status sar_stream_run(sar_handle graph, const sar_stream *what, uint32_t *agreed);

/* ---- sampling ---------------------------------------------------------- */

/* Draws blocks of the neighbourhood of seed nodes, layer by layer, in the background, and fetches
 * features. Nodes have ids by type, [0, n) over all workers and rank by rank (for one node type the
 * ids of its node ranges); so do edges of a relation. */
typedef struct {
  size_t size;
  const DLTensor *fanouts; /* int64 [layers, relations]: edges drawn per destination node, -1 for
                            * every in-edge */
  int32_t replace;         /* 1: with replacement; a node with in-edges then gets its fan-out */
  int32_t edge_ids;        /* 1: tell the ids of the edges drawn */
  int64_t cache_bytes;     /* at most so many bytes of input columns of other ranks' nodes are kept;
                            * columns must not change then. 0: none */
} sar_sample_config;

/* Collective the first time for a graph, and for a session.
 * Errors: SAR_ERR_VALUE for no layers, a fan-out below -1, and a graph that is a block. */
sar_status sar_sampler_create(sar_handle graph, const sar_sample_config *config,
                              sar_handle *sampler);

/* Registers a column, before the first batch; the same on every rank but for the number of rows.
 * Its memory must last until sar_sampler_free returns.
 *  - INPUT: of a node type; blocks have it for the nodes of the first layer.
 *  - OUTPUT: of a node type; blocks have it for the seeds.
 *  - EDGE: of a relation, for the edges drawn.
 *  - WEIGHT: float32 [num_edges] of a relation, finite and >= 0, to draw in proportion to; one for
 *    every relation or none.
 * Others are of any dtype, one row per own node, or per in-edge in ascending id.
 * Errors: SAR_ERR_VALUE for any other kind of column, a type that is not there, and after the
 * first batch. A wrong number of rows is an error of sar_sampler_submit. */
enum { SAR_SAMPLE_INPUT = 0, SAR_SAMPLE_OUTPUT = 1, SAR_SAMPLE_EDGE = 2, SAR_SAMPLE_WEIGHT = 3 };
sar_status sar_sampler_column(sar_handle sampler, int32_t what, int32_t type,
                              const DLTensor *rows);

/* Has a batch drawn, and returns at once. Collective: every rank submits in the same order.
 *  - seeds [num_types] of int64 [n]: own rows, none twice.
 *  - key: of the random numbers. Ranks that use the same key draw the same edges for a node.
 * Errors: SAR_ERR_VALUE for another number of types, and for seeds that are no own rows or there
 * twice. */
sar_status sar_sampler_submit(sar_handle sampler, const DLTensor *seeds, int32_t num_types,
                              uint64_t key, sar_handle *batch);

/* Waits for the batches that were submitted, which the peers count on. Batches live on. */
sar_status sar_sampler_free(sar_handle sampler);

/* Returns once the batch is there, or with the error that ended it. */
sar_status sar_batch_wait(sar_handle batch);

/* An array of a batch, for which it waits: the memory, until sar_batch_free, and its size in bytes;
 * num_dst may be NULL. Layer 0 is the one that reads the input; its destination nodes are the
 * source nodes of layer 1.
 *  - NODES of a node type: int64 ids of the source nodes, of which the first num_dst are the
 *    destination nodes.
 *  - INDPTR, INDICES, EDGE_IDS of a relation: int64, the edges by destination.
 *  - DATA of a relation, INPUT and OUTPUT of a node type: bytes of rows, of the column with this
 *    number in the order of sar_sampler_column.
 * Errors: SAR_ERR_VALUE for a layer, an array, a type or a column that is not there. */
enum {
  SAR_BATCH_NODES = 0,
  SAR_BATCH_INDPTR = 1,
  SAR_BATCH_INDICES = 2,
  SAR_BATCH_EDGE_IDS = 3,
  SAR_BATCH_DATA = 4,
  SAR_BATCH_INPUT = 5,
  SAR_BATCH_OUTPUT = 6
};
sar_status sar_batch_array(sar_handle batch, int32_t layer, int32_t what, int32_t type,
                           int32_t column, void **data, int64_t *bytes, int64_t *num_dst);

/* A batch on its way is dropped when it comes. */
sar_status sar_batch_free(sar_handle batch);

/* ---- rows and edges by number ------------------------------------------ */

/* Columns number source rows: own rows 0..num_src-1, then the boundary rows, num_src + num_boundary
 * in all. */

/* The in-edges of rows, own destination rows int64 [n]: indptr int64 [n + 1], and int64
 * [indptr[n]] their columns and positions (in ascending edge id), ascending by edge. With columns
 * and edges NULL it fills indptr alone.
 * Errors: SAR_ERR_VALUE for rows that are no own rows. */
sar_status sar_graph_in_edges(sar_handle graph, int32_t relation, const DLTensor *rows,
                              DLTensor *indptr, DLTensor *columns, DLTensor *edges);

/* For each column the rank that owns its row, and the row's number there: int64 [columns]. Either
 * may be NULL. Collective where row is not. */
sar_status sar_graph_columns(sar_handle graph, int32_t relation, DLTensor *owner, DLTensor *row);

/* out[i] = row columns[i] of x. Collective, on SAR_COMM_TRAIN.
 *  - columns int64 [n], n of its own on every rank.
 *  - x [num_src, ..] of any dtype; out [n, ..].
 *  - flags: 16 bits that every rank is told; agreed: all ranks'.
 * Wire: the row and 4 bytes for each row of a peer.
 * Errors: SAR_ERR_VALUE for numbers that are no columns, and for flags of more than 16 bits. */
sar_status sar_fetch_forward(sar_handle graph, int32_t relation, const DLTensor *columns,
                             uint32_t flags, const DLTensor *x, DLTensor *out, uint32_t *agreed);

/* Adds grad_out [n, ..], float, to the rows that were fetched, in grad_x [num_src, ..] of their
 * owners; NULL where this rank wants none. Collective.
 * Errors: SAR_ERR_VALUE for numbers that are no columns. */
sar_status sar_fetch_backward(sar_handle graph, int32_t relation, const DLTensor *columns,
                              const DLTensor *grad_out, DLTensor *grad_x);

/* ---- edge expressions -------------------------------------------------- */

/* What a message is made of, as a straight-line program. JSON:
 *   {"operands": [{"side": "u" | "v" | "e" | "p", "shape": [..], "storage": "bfloat16"}, ..],
 *    "code": [{"op": name, "a": register, "b": register, "alpha": number, "shape": [..]}, ..],
 *    "result": register,
 *    "reduce": "none" | "sum" | "mean" | "max" | "min" | "max_shared" | "min_shared"}
 * There are at most 16 operands, whose shapes are without the first dimension. One with a storage
 * ("": none) is a tensor of bfloat16 and travels as such; what is computed with are floats.
 * Registers are the operands, then one an instruction.
 *
 * Operations:
 *  - of a and b, which broadcast from the right: add sub mul div dot. dot sums the last dimension
 *    and keeps it as 1.
 *  - of a: neg relu leaky_relu elu exp log sqrt sigmoid tanh softplus abs reciprocal.
 *  - of a and alpha: scale shift rsub (alpha - a) pow clamp_min clamp_max clamp_min_open
 *    clamp_max_open (of gradient 0 at the bound) leaky_relu elu dropout (alpha: probability).
 *  - of a and shape: total (sums into it) reshape.
 *  - softmax of a, over the in-edges of each destination.
 *
 * Errors: SAR_ERR_VALUE for JSON that is no such program; the message names the instruction and the
 * shapes. */
sar_status sar_program_create(const char *json, sar_handle *program);

/* What a caller has to know to run it. JSON:
 *   {"shape": [.. of the result], "softmaxes": [width, ..], "seeds", "winner": bool,
 *    "collective": bool}
 * "seeds" counts dropouts. "winner" is true for max and min, "collective" where there are operands
 * of side u. */
sar_status sar_program_info(sar_handle program, char **json);

/* Runs in progress keep what they use. */
sar_status sar_program_free(sar_handle program);

typedef struct {
  size_t size;
  int32_t relation;
  uint32_t need_grad;    /* bit i: this rank wants the gradient of operand i */
  uint32_t agreed;       /* backward: what forward agreed on */
  int32_t num_seeds;
  const uint64_t *seeds; /* one for each dropout in the order of code, the same on all ranks */
  const DLTensor *keys;  /* int64 [num_edges], what dropout knows an edge by, or NULL: key_base +
                          * position */
  int64_t key_base;
} sar_program_call;

/* Runs a program. Collective, on SAR_COMM_TRAIN, where there are operands of side u.
 *  - operands: float or as they are stored, one for each of the program: u [num_src, ..],
 *    v [num_dst, ..], e [num_edges, ..] in ascending edge id, p [1, ..].
 *  - out: float, or bfloat16, to which what was computed in float32 is rounded once: [num_dst, ..],
 *    without a reducer [num_edges, ..]. Rows without edges give 0. With max and
 *    min, so do infinite results, and NaN never wins; with max_shared and min_shared NaN wins, and
 *    infinite results stay.
 *  - state is filled for backward. For each softmax what its arguments are relative to, and the
 *    inverses of its sums: float [num_dst, width] each. Then for max and min the winning edges,
 *    int32 [num_dst, ..]; for max_shared and min_shared, which divide the gradient among equal
 *    messages, how many there are.
 *  - agreed, out: the operands that any rank wants a gradient of. A bit of need_grad above the
 *    operands', below 16, is there where any rank has set it.
 *  - saves, out: the operands that backward reads, and the result as bit 31.
 * Wire, for each sweep (one, and one for each level of softmaxes that cannot join it): the widths
 * of the operands of side u that it reads, per boundary row.
 * Errors: SAR_ERR_VALUE for another number of operands, states or seeds than the program has. */
sar_status sar_program_forward(sar_handle graph, sar_handle program, const sar_program_call *what,
                               const DLTensor *operands, int32_t num_operands, DLTensor *state,
                               int32_t num_state, DLTensor *out, uint32_t *agreed,
                               uint32_t *saves);

/* grads: for each operand in need_grad its gradient, of its shape. Tensors that are not needed have
 * no elements. out, grad_out and grads are float or bfloat16, each for itself. The same seeds and
 * keys as forward. Collective like forward.
 * Errors: as sar_program_forward; SAR_ERR_VALUE where something that saves named is missing. */
sar_status sar_program_backward(sar_handle graph, sar_handle program, const sar_program_call *what,
                                const DLTensor *operands, int32_t num_operands, DLTensor *state,
                                int32_t num_state, const DLTensor *out, const DLTensor *grad_out,
                                DLTensor *grads, int32_t num_grads);

/* ---- kernels on their own, without a session --------------------------- */

/* y[i, :] = sum over k in [indptr[i], indptr[i+1]) of w[k] * x[indices[k], :]
 * indptr int64 [n + 1], indices int32 [nnz], w float [nnz] or [nnz, h] or NULL, x [m, f], y [n, f].
 * Errors: SAR_ERR_VALUE for indptr that descends or does not end at nnz, and for indices that are
 * no rows of x. */
sar_status sar_kernel_spmm(const DLTensor *indptr, const DLTensor *indices, const DLTensor *w,
                           const DLTensor *x, DLTensor *y);

/* out[k, h] = sum over d of x[indices[k], h, d] * g[i, h, d] for slot k of row i.
 * Errors: as sar_kernel_spmm; SAR_ERR_VALUE for heads that do not divide f. */
sar_status sar_kernel_sddmm(const DLTensor *indptr, const DLTensor *indices, const DLTensor *x,
                            const DLTensor *g, DLTensor *out);

/* A matrix that is multiplied many times: checked and copied once, and put into an order in which
 * its products are faster where it is square and has one. indptr int64 [n + 1], indices int32
 * [nnz], below num_cols. 4 bytes an entry and 8 a row, 20 a row with an order, until it is freed.
 * Errors: as sar_kernel_spmm; SAR_ERR_VALUE for a number of columns that int32 does not hold. */
sar_status sar_matrix_create(const DLTensor *indptr, const DLTensor *indices, int64_t num_cols,
                             sar_handle *matrix);

/* The product of sar_kernel_spmm, the same to the bit. x has num_cols rows; w is in the order of
 * indices. */
sar_status sar_matrix_spmm(sar_handle matrix, const DLTensor *w, const DLTensor *x, DLTensor *y);

/* Waits for products in progress. */
sar_status sar_matrix_free(sar_handle matrix);

/* A hash of the bytes of a tensor of any dtype: the same for every number of threads. */
sar_status sar_checksum(const DLTensor *x, uint64_t *out);

/* ---- columns: what batch normalization is made of, on own rows --------- */

/* x is float [n, f]; numbers of columns are of its type, sums of columns float64 [2, f]. x, grad,
 * out and grad_x may each be bfloat16: what is computed is then float32 where x is bfloat16, else
 * of the type of x, and it is rounded to nearest even where it is written. Where x is normalized,
 * by
 *   s[i, j] = (x[i, j] - columns[0, j]) * columns[1, j] + columns[2, j]
 * and with relu != 0 it becomes 0 where it is not above 0 (NaN stays), and so do gradients of it.
 * Behind that is dropout, in results and in gradients, unless it is NULL.
 * Sums add up in one order, whatever the number of threads. */

/* Element [i, j] is multiplied by 0 where a random number in [0, 1), drawn for seed, key of row i
 * and j, is below share (of 31 bits), and is divided by 1 - share elsewhere. The numbers are the
 * same for every dtype, and whatever other rows there are. */
typedef struct {
  size_t size;
  double share;         /* 0 to 1; 0: nothing is dropped */
  uint64_t seed;
  const DLTensor *keys; /* int64 [n], or NULL: key_base + i */
  int64_t key_base;
} sar_dropout;

/* out[0, j]: mean over i of x[i, j]; out[1, j]: sum over i of (x[i, j] - mean)^2. Zeros where there
 * are no rows. */
sar_status sar_column_moments(const DLTensor *x, DLTensor *out);

/* out[i, j] = s[i, j]; columns [3, f]; out may be x. Where columns is NULL, s is x, and relu must
 * be 0: dropout alone, and the gradient of it. */
sar_status sar_normalize(const DLTensor *x, const DLTensor *columns, int32_t relu,
                         const sar_dropout *dropout, DLTensor *out);

/* out[i, j] = grad[i, j] where relu and dropout let s[i, j] through, else 0: the gradient of s.
 * columns [3, f]; out may not be x or grad. */
sar_status sar_normalize_back(const DLTensor *grad, const DLTensor *x, const DLTensor *columns,
                              int32_t relu, const sar_dropout *dropout, DLTensor *out);

/* out[0, j]: sum over i of grad[i, j]
 * out[1, j]: sum over i of grad[i, j] * (x[i, j] - columns[0, j])
 * columns [3, f]. */
sar_status sar_normalize_sums(const DLTensor *grad, const DLTensor *x, const DLTensor *columns,
                              int32_t relu, const sar_dropout *dropout, DLTensor *out);

/* grad_x[i, j] = grad[i, j] * columns[1, j] + (x[i, j] - columns[0, j]) * columns[3, j]
 *              + columns[4, j]
 * columns [5, f]; grad_x may be grad or x. */
sar_status sar_normalize_grad(const DLTensor *grad, const DLTensor *x, const DLTensor *columns,
                              int32_t relu, const sar_dropout *dropout, DLTensor *grad_x);

#ifdef __cplusplus
}
#endif

#endif /* SAR_H */
