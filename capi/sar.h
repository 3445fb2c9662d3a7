/* sar.h - C interface of SAR, full-batch training of graph neural networks on
 * graphs that are split over several workers.
 *
 * This file is the specification. A test compares it with the exported symbols.
 *
 * Rules
 *  - Every function returns a sar_status, 0 (SAR_OK) on success, unless it says
 *    otherwise. After a failure sar_last_error() gives the message of the
 *    calling thread, and sar_last_error_info() its parts.
 *  - Objects are opaque non-zero handles. A handle may be used by any thread;
 *    operations on one communicator must be issued by one thread at a time.
 *  - Tensors are DLPack's DLTensor on the CPU, row-major and contiguous
 *    (strides NULL, or saying the same). They belong to the caller and are not
 *    kept after the call returns. "float" means float32 or float64; all tensors
 *    of one call have the same float type. [n, w] is n rows of w numbers; more
 *    trailing dimensions count as one.
 *  - "Collective" means that every worker of the session makes the same call in
 *    the same order. Workers that diverge get SAR_ERR_SCHEDULE.
 *  - Structs that configure begin with their own size, so that they can grow.
 *  - A process that forks after its first call must not call from the child:
 *    the Go runtime does not survive a fork. Start workers by spawn or exec.
 *  - Strings returned through char** belong to the caller: sar_free_string.
 */
#ifndef SAR_H
#define SAR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SAR_ABI_VERSION 5u

/* ---- tensors: the layout of DLPack's DLTensor -------------------------- */
#ifndef DLPACK_DLPACK_H_
typedef struct { int32_t device_type; int32_t device_id; } DLDevice; /* CPU: {1, 0} */
typedef struct { uint8_t code; uint8_t bits; uint16_t lanes; } DLDataType; /* code 0 int, 1 uint, 2 float, 4 bfloat, 6 bool */
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
  SAR_ERR_VALUE = 1,     /* shape, size or range of an argument (Python: ValueError) */
  SAR_ERR_TYPE = 2,      /* dtype or device of a tensor (TypeError) */
  SAR_ERR_FORMAT = 3,    /* a damaged file (sar.FormatError) */
  SAR_ERR_PEER_LOST = 4, /* a worker died, was stopped or cut off (sar.PeerLostError) */
  SAR_ERR_REMOTE = 5,    /* another worker failed; the message carries its error (sar.RemoteError) */
  SAR_ERR_SCHEDULE = 6,  /* workers disagree about what comes next (sar.ScheduleError) */
  SAR_ERR_BUDGET = 7,    /* a memory budget cannot be met (sar.BudgetError) */
  SAR_ERR_TIMEOUT = 8,   /* a deadline passed (sar.DeadlineError) */
  SAR_ERR_CLOSED = 9,    /* the handle is closed or the session is shut down (RuntimeError) */
  SAR_ERR_IO = 10,       /* the operating system refused (OSError) */
  SAR_ERR_INTERNAL = 11, /* a bug in the engine (RuntimeError) */
  SAR_ERR_RENDEZVOUS = 12, /* workers could not meet: unreachable master, port in use, two workers with one rank (sar.RendezvousError) */
  SAR_ERR_STOPPED = 13   /* a callback of the caller asked for it (Python: the callback's exception) */
};

typedef struct {
  size_t size;           /* in: sizeof(sar_error_info) */
  sar_status status;
  int32_t rank;          /* the rank concerned, -1 where there is none */
  const char *message;   /* the whole message */
  const char *host;      /* PEER_LOST: host of the rank, else "" */
  const char *phase;     /* PEER_LOST: what the rank was last known to do, else "" */
  const char *file;      /* FORMAT: the file, else "" */
  int64_t offset;        /* FORMAT: byte offset, -1 where unknown */
  int64_t minimum;       /* BUDGET: the smallest budget that can be met, else 0 */
  int32_t error_number;  /* IO: errno, e.g. ENOENT for a missing file; 0 where there is none */
} sar_error_info;

uint32_t sar_abi_version(void);
const char *sar_version(void);              /* of the engine, static */
const char *sar_last_error(void);           /* of the calling thread; valid until its next call */
void sar_last_error_info(sar_error_info *out); /* strings valid until the thread's next call */
void sar_free_string(char *s);

/* ---- process ----------------------------------------------------------- */
sar_status sar_set_num_threads(int32_t n);  /* kernel threads of this process, >= 1 */
int32_t sar_get_num_threads(void);
const char *sar_simd(void);                 /* "scalar", "avx2" or "avx512": what kernels use, static */
/* JSON: {"structure": {"live": bytes, "peak": bytes}, "features": .., "window": .., "scratch": .., "runtime": ..,
 * "mapped": .., "total": ..}; "mapped" is addresses of mapped features, whether in memory or not, which total leaves out;
 * "runtime" is what Go holds of the operating system, as this call finds it */
sar_status sar_memory_stats(char **json);
void sar_reset_peaks(void);                 /* lowers every peak to what is live */
/* What becomes of freed blocks of 256 KiB and more. Compact: glibc gives them back at once (mallopt). Pool: as compact,
 * and those of torch's CPU tensors are kept, as long as what is in use and what is kept stay within what was in use at the
 * busiest moment since the call; fails where torch is not loaded. Default: puts glibc's own rule back as far as it can.
 * Each call gives back what is kept. */
enum { SAR_ALLOCATOR_DEFAULT = 0, SAR_ALLOCATOR_COMPACT = 1, SAR_ALLOCATOR_POOL = 2 };
sar_status sar_set_allocator(int32_t policy);
sar_status sar_pool_stats(char **json); /* of torch's large blocks, in bytes: live, kept, peak, fresh (handed out in all that was not there yet) */
void sar_pool_trim(void);               /* gives back what is kept; the peak starts anew */

/* ---- session: one worker among several --------------------------------- */
typedef uint64_t sar_handle;

typedef struct {
  size_t size;
  int32_t rank, world;        /* 0 <= rank < world */
  const char *master_addr;    /* where rank 0 listens; ignored for world 1 */
  int32_t master_port;
  const char *interface_name; /* network interface whose address peers use; NULL or "": the route to the master */
  const char *transport;      /* "shm", "tcp", one registered, or NULL, "" or "auto": shm on one host, else tcp */
  const char *advertise;      /* host:port that peers connect to in place of the listener's own, or NULL */
  double start_seconds;       /* deadline of the rendezvous; 0: 300 */
  double liveness_seconds;    /* a worker unheard of for so long is lost; 0: 20 */
  double operation_seconds;   /* deadline of any one operation; 0: 1800 */
  int64_t window_bytes;       /* receive buffers, rings and send staging together; 0: sar_default_window */
  /* Secret of the job, at least 16 characters, the same on every worker: who connects proves that it has it. NULL or "":
   * where no address of the job can be reached from other hosts, one made of a secret of this user (sar_job_token);
   * else opening fails, unless insecure is set. */
  const char *job_token;
  int32_t insecure;           /* 1: without a token anybody may join who reaches the ports */
  int32_t tls;                /* 1: TCP connections run under TLS 1.3; the same on every worker */
  int32_t first_port, last_port; /* ports to listen on, both included; 0 and 0: any. Rank 0 listens at master_port alone */
} sar_session_config;

/* A job token made of what is no secret, such as the number of a job at a scheduler, and a secret that only this user can
 * read: ~/.config/sar/secret, or SAR_SECRET_FILE, made when it is first needed. The same for all processes that share it. */
sar_status sar_job_token(const char *public_id, char **token);

sar_status sar_session_open(const sar_session_config *config, sar_handle *session); /* collective */
/* Says goodbye to the peers and frees everything. Not collective: peers that still wait for this rank get SAR_ERR_PEER_LOST. */
sar_status sar_session_close(sar_handle session);
/* Tells every peer that this rank failed: their current and later calls end with SAR_ERR_REMOTE carrying the message. */
sar_status sar_session_abort(sar_handle session, const char *message);
/* Says what the operations on SAR_COMM_TRAIN that begin from now on belong to, as far as their arguments do not show it. It
 * travels in their frames at no cost, so ranks that run operations of equal rows in another order get SAR_ERR_SCHEDULE in
 * place of wrong numbers. layer: number of the layer that runs them, the same on every rank, below 4096; 0: not known, which
 * goes with any. of: in backward, the number of the forward operation that they belong to, else 0. name: what messages call
 * them, or NULL. number: that of the next operation. */
sar_status sar_session_set_place(sar_handle session, uint32_t layer, uint64_t of, const char *name, uint64_t *number);
/* What messages call a layer. */
sar_status sar_session_name_layer(sar_handle session, uint32_t layer, const char *name);
/* A new window, from the next graph operation on, exact to the byte; 0: one that the session sizes itself. What is told
 * as the most held of it begins anew. Collective. */
sar_status sar_session_set_window(sar_handle session, int64_t window_bytes);
/* Who computes gradients of edge expressions over edges between two workers, where backward reads values of sources:
 * SAR_EXCHANGE_PULL the reader of the sources, who fetches them again and sends their gradients back; SAR_EXCHANGE_PUSH
 * their owner, whom readers send the rows of destinations, where the program reads nothing of edges; SAR_EXCHANGE_AUTO
 * (at first) what is cheaper, for each pair of workers: see links in sar_session_stats. Every rank must choose the same. */
enum { SAR_EXCHANGE_AUTO = 0, SAR_EXCHANGE_PULL = 1, SAR_EXCHANGE_PUSH = 2 };
sar_status sar_session_set_exchange(sar_handle session, int32_t exchange);
/* The window, in bytes, that a session of so many workers gives itself once it holds a graph of which no worker owns more
 * than so many nodes: 4 to 16 MiB, and among many workers more, for frames of 256 KiB. Samplers, and rows that no frame would
 * hold, have it take at least 16 MiB. */
int64_t sar_default_window(int32_t world, int64_t nodes);
/* JSON: rank, world, peers [{rank, host, pid, transport}], window {limit, live, peak since it has that limit},
 * links [{peer, communicator, transport, sent_payload, sent_bytes, sent_frames, recv_...,
 * sent_pulled, sent_home, sent_pushed, wait_seconds blocked on the link}],
 * operations {kind: {count, seconds, wait_seconds, sent_bytes, recv_bytes}}. */
/* The largest of what workers held, by the names of sar_memory_stats, as {"peaks": {..}, "workers": who are known of}.
 * Not collective; waits at most so long for the others to close their sessions, since that brings their last figures. */
sar_status sar_session_memory(sar_handle session, double wait_seconds, char **json);
sar_status sar_session_stats(sar_handle session, char **json);

/* ---- transports that are libraries of others ----------------------------- */
/* A network library carries the frames between workers where it is registered as a transport, by this table of functions,
 * and SAR_TRANSPORT, or sar_session_config.transport, gives its name. It moves messages. All else is the engine's:
 * deadlines, signs of life, the end of a peer, the order of frames, how much may be on its way, and errors. Two workers
 * that are to be linked have a TCP connection over which both have proved that they belong to the job. Over it the engine
 * tells each the other's address; the first messages of a link are that proof once more. TLS does not reach this far:
 * with it such a transport is refused.
 *
 *  - An opened worker is what one rank has of the library; a process may hold several. A link joins it to one peer, for one
 *    communicator, in both directions.
 *  - Messages: the k-th message that a side sends over a link goes to the k-th receive that the other side posts on it, and
 *    both have the same size, 1 byte to 1 GiB. Sends and receives are posted ahead of each other in any order, and at most
 *    SAR_TRANSPORT_POSTED of each are outstanding on a link. A send may wait until its receive is posted, or be buffered;
 *    the engine sends no more ahead than the window has room for at the receiver.
 *  - send and receive post a request and return at once: they wait neither for the peer nor for the network. Every request
 *    is completed by one call of done, as soon as the library no longer touches the buffer: SAR_OK; SAR_ERR_PEER_LOST where
 *    the peer is gone; SAR_ERR_CLOSED after disconnect; any other status for other failures. A send is complete when its
 *    buffer may be changed, a receive when its bytes are there. done may be called by any thread, in any order, also before
 *    send or receive return. It returns at once and calls nothing of the table, so that locks may be held.
 *  - Nothing of the table is called to make progress: a library that needs that has a thread of its own, which sleeps while
 *    nothing happens and has all signals blocked. An installed signal handler belongs to the Go runtime and stays as it is.
 *  - Threads: on one link one thread at a time calls send, one at a time receive, and both may at once; disconnect comes
 *    when both have returned. Calls for different links, and connect, register_memory and unregister_memory, may run at
 *    once. close comes when every other call has returned and every request is complete.
 *  - What is posted on a link after a request has failed may fail too. The engine disconnects it in the end.
 *  - disconnect returns at once. It ends every outstanding request: done is called for each, maybe later, when the library no
 *    longer touches its buffer, and then the library frees the link. The engine keeps the buffers until then; buffers of the
 *    caller's are given to a library only that sets SAR_TRANSPORT_REVOKES. Before a link that has not failed is disconnected
 *    both engines have made sure that everything has arrived.
 *  - What open, register_memory and connect give is whatever the library knows it by. The engine hands it back unread.
 *  - text is for SAR_TRANSPORT_TEXT bytes, terminated by 0: why a function failed, with what to do about it. */
enum { SAR_TRANSPORT_ADDRESS = 4096, SAR_TRANSPORT_TEXT = 512, SAR_TRANSPORT_POSTED = 256 };
enum {
  /* After disconnect every request is complete within a second, whatever the peer does, and no receive succeeds whose send
   * does not. The engine then has payloads sent straight from, and received straight into, tensors of its callers; else
   * through memory of its own alone. */
  SAR_TRANSPORT_REVOKES = 1u
};

/* Completes a request. text says what went wrong; NULL and "" where nothing did. */
typedef void (*sar_transport_done)(uint64_t request, sar_status status, const char *text);

typedef struct {
  size_t size;
  int32_t rank, world;     /* this worker's number, and how many there are */
  sar_transport_done done;
} sar_transport_worker;

typedef struct {
  size_t size;
  int32_t rank;            /* the peer's */
  const uint8_t *address;  /* what the peer's open gave; gone when connect returns */
  size_t address_bytes;
  /* Numbers for native tags, 1 and up. No other link that this process has made, in whatever worker, receives with this
   * receive_tag, nor does a link of the peer's process with this send_tag: each is the other one's at the peer. */
  uint32_t send_tag, receive_tag;
} sar_transport_peer;

typedef struct {
  size_t size;
  const char *name;        /* 1 to 15 of a-z, 0-9 and _, first a letter: what users ask for. No other transport's */
  void *user;              /* given to probe and open */
  uint32_t flags;
  /* What a byte takes, in nanoseconds of computation that could be done in place of it, copies at both ends included; the
   * same on every worker. 0: as over TCP. */
  double byte_cost;
  /* Whether the library can be used here, without opening it for longer than the call. text: what it uses, for people,
   * such as "rc_mlx5/mlx5_0:1". automatic: 1 where it is to be chosen without being asked for, because it is faster here
   * than TCP; every session that is told no transport asks for that alone, with text NULL, and wants a quick answer.
   * NULL: the library can be used, and is chosen only where asked for. */
  sar_status (*probe)(void *user, int32_t *automatic, char *text);
  /* Opens a worker, and writes the address by which the library reaches it from peers: at most SAR_TRANSPORT_ADDRESS bytes,
   * and how many. Such as a worker address, or the rank in a world of the library's own. */
  sar_status (*open)(void *user, const sar_transport_worker *about, void **worker, uint8_t *address, size_t *address_bytes, char *text);
  void (*close)(void *worker);
  /* Makes memory of the engine's, in which most messages begin and end, ready for the network. Both may be NULL. */
  sar_status (*register_memory)(void *worker, void *base, size_t bytes, void **memory, char *text);
  void (*unregister_memory)(void *worker, void *memory);
  /* Makes a link. Returns at once: it may come about while the first messages travel, and fail with them. */
  sar_status (*connect)(void *worker, const sar_transport_peer *peer, void **link, char *text);
  /* memory: what register_memory gave for memory that holds all of buffer, else NULL. */
  void (*send)(void *link, const void *buffer, size_t bytes, void *memory, uint64_t request);
  void (*receive)(void *link, void *buffer, size_t bytes, void *memory, uint64_t request);
  void (*disconnect)(void *link);
} sar_transport;

/* Makes a transport known to the sessions that are opened later. The struct and its name are copied; user and the functions
 * are there as long as the process. */
sar_status sar_transport_register(const sar_transport *transport);
/* A file to open for "ucx" or "mpi", which are transports of SAR's own, where no variable (SAR_UCX_LIB, SAR_MPI_LIB) names one and
 * the system has none. It counts until the library is open. */
sar_status sar_transport_library(const char *name, const char *file);
/* What a registered transport, or "ucx" or "mpi", would use here, for people; fails with the reason where it cannot be used. */
sar_status sar_transport_probe(const char *name, char **uses);

/* ---- collectives ------------------------------------------------------- */
/* A communicator orders operations; two of them may overlap. 0 is for training
 * (aggregation), 1 for gradients and everything else; further ones are made here. Collective. */
enum { SAR_COMM_TRAIN = 0, SAR_COMM_REDUCE = 1 };
sar_status sar_comm_create(sar_handle session, const char *name, int32_t *comm);

enum { SAR_SUM = 0, SAR_MIN = 1, SAR_MAX = 2, SAR_PROD = 3, SAR_AVG = 4 };
/* In place. float64/32/16, bfloat16, int64, int32, uint8, bool (sum of bool is or). The same bits on every rank. */
sar_status sar_all_reduce(sar_handle session, int32_t comm, DLTensor *tensor, int32_t op);
sar_status sar_broadcast(sar_handle session, int32_t comm, DLTensor *tensor, int32_t root); /* in place, any dtype */
sar_status sar_barrier(sar_handle session, int32_t comm);
/* send[q] goes to rank q, recv[q] comes from it; byte sizes must match pairwise; any dtype. */
sar_status sar_all_to_all(sar_handle session, int32_t comm, const DLTensor *send, DLTensor *recv, int32_t n);
/* Sends to one rank while receiving from another; -1 for neither. Collective over the session in order, not in peers. */
sar_status sar_exchange_pair(sar_handle session, int32_t comm, int32_t send_to, const DLTensor *send, int32_t recv_from, DLTensor *recv);

/* ---- partition data on disk: DGL's format ------------------------------- */
enum { SAR_PARTITION_OUTSIDE = 1 }; /* the JSON may name files outside its own directory */
/* Headers are held against the checksums that the partition has now, arrays when they are read. */
sar_status sar_partition_open(const char *json_path, int32_t part, uint32_t flags, sar_handle *partition);
/* Reads all files of a partition and tells what is wrong with them. Damage is no error of the call.
 * JSON: [{"file", "bytes", "arrays", "checksums": true where every byte was held against one, "damage": [text, ..]}] */
sar_status sar_partition_verify(const char *json_path, int32_t part, uint32_t flags, char **json);
sar_status sar_partition_close(sar_handle partition);
/* JSON: {"graph_name", "num_parts", "part", "node_types": [..], "edge_types": [[src, rel, dst], ..],
 *  "node_ranges": {ntype: [[start, end], ..per part]}, "edge_ranges": {"src:rel:dst": ..}, (homogenized ids)
 *  "node_features": [{"name": "ntype/feat", "dtype": "float32", "shape": [n, ..]}], "edge_features": [..],
 *  "num_inner_nodes", "num_local_nodes", "num_local_edges"} */
sar_status sar_partition_info(sar_handle partition, char **json);
/* Reads a feature into a tensor of its shape and dtype (bool may be read from uint8). */
sar_status sar_partition_read(sar_handle partition, int32_t edge, const char *name, DLTensor *out);
/* A feature of one number or more where its file is mapped, in place of a copy: its address, and a handle of its own, which
 * lives on when the partition is closed. The memory may be written to: that makes private copies of its pages, and changes
 * no file. Where the partition has checksums, the whole feature is held against them. A feature of DGL's format that begins
 * at no multiple of 64 bytes is copied to a file without a name beside its own. The file must keep its size: to touch what
 * was cut off kills the process. */
sar_status sar_partition_map(sar_handle partition, int32_t edge, const char *name, uint64_t *address, sar_handle *map);
/* Reads n bytes, from byte first after the address on, into a window of n + 8192 bytes, past the page cache where the file
 * system can do that; gives the byte of the window where they begin, on the same byte of 64 as in the map. -1: nothing was
 * read, since the map is as good: the page cache has them, or memory that was written to. Format error: the file became
 * shorter than the feature. */
sar_status sar_map_read(sar_handle map, int64_t first, int64_t n, DLTensor *window, int64_t *at);
sar_status sar_map_close(sar_handle map); /* the memory is gone */
/* The worker's in-edges of one relation, in ascending edge id: int64 homogenized ids, each [n]. n is num_edges of the
 * relation (sar_partition_count_edges). Any of the three may be NULL. */
sar_status sar_partition_count_edges(sar_handle partition, int32_t relation, int64_t *n);
sar_status sar_partition_edges(sar_handle partition, int32_t relation, DLTensor *src, DLTensor *dst, DLTensor *id);

/* ---- making partitions -------------------------------------------------- */
/* Writes checksums.crc into a graph directory (graph.json and .npy files), names it in graph.json, and gives that a checksum
 * of its own. What is read of the directory is held against them. */
sar_status sar_graph_directory_sum(const char *dir);
/* JSON: a report on each file of a graph directory, as sar_partition_verify gives it. */
sar_status sar_graph_directory_verify(const char *dir, char **json);
/* A graph directory (graph.json and .npy files), all parts of a partitioned graph (its .json), or an .npz file. */
sar_status sar_dataset_open(const char *path, sar_handle *dataset);
sar_status sar_dataset_close(sar_handle dataset);
/* Gives every node that lacks one an edge to itself; they come after the edges of the file. For graphs of one type without
 * edge arrays, before any other call that reads the data set; not while another thread uses it. */
sar_status sar_dataset_add_self_loops(sar_handle dataset);
/* JSON: {"num_nodes", "num_edges", "node_arrays": [{"name", "dtype", "shape"}], "edge_arrays": [..],
 *  "node_types": [{"name", "rows"}], "edge_types": [..]}. Nodes are numbered over all types, one type after the other. */
sar_status sar_dataset_info(sar_handle dataset, char **json);
/* Undirected adjacency without self loops, as METIS wants it. First call with adjncy NULL: gives its length. xadj int64 [n + 1]; adjncy int64 or int32 [length]. */
sar_status sar_dataset_adjacency(sar_handle dataset, DLTensor *xadj, DLTensor *adjncy, int64_t *length);
/* method "random" (equal sizes), "contiguous" (equal in-edges) or "stored" (that of a partitioned graph); assignment int32 [num_nodes]. */
sar_status sar_dataset_assign(sar_handle dataset, const char *method, int32_t parts, uint64_t seed, DLTensor *assignment);
/* JSON: {"edge_cut", "edge_cut_fraction", "nodes": [..], "edges": [..], "node_balance", "edge_balance", "boundary": [[rows that p reads of q]], "between": [[edges from q to p]]} */
sar_status sar_dataset_quality(sar_handle dataset, const DLTensor *assignment, int32_t parts, char **json);
/* Hears how far a step is, now and then. It may be NULL. What it returns other than 0 ends the step, as SAR_ERR_STOPPED. */
typedef int32_t (*sar_progress)(void *user, int64_t done, int64_t total);
/* Weights of nodes: what "edges" is its in-edges, "train" 1 where its feature train_mask is not 0. weights int32 [num_nodes]. */
sar_status sar_dataset_weights(sar_handle dataset, const char *what, DLTensor *weights);
/* Prepares the next two: the graph without directions, loops and repetitions. A graph of one type on disk whose edges all
 * go both ways serves as it is. Any other is sorted into files without names in the directory scratch, with memory bytes
 * and 8 a node. */
sar_status sar_dataset_undirect(sar_handle dataset, const char *scratch, int64_t memory, sar_progress progress, void *user);
/* Streaming partitioner. assignment int32 [num_nodes] is -1 - g before for a node of group g, of groups with parts/groups
 * parts each; after, its part. No part is heavier than the mean by more than imbalance (a share) where that can be, by any
 * of the weights: int32 [kinds, num_nodes], or NULL: each node weighs 1. */
sar_status sar_dataset_fennel(sar_handle dataset, int32_t parts, int32_t groups, double imbalance, uint64_t seed,
                              const DLTensor *weights, DLTensor *assignment, sar_progress progress, void *user);
/* Writes the graph to an existing file in ParHIP's binary format, with weights (int32 [num_nodes]) where they are not NULL;
 * of an assignment that is not NULL, the nodes of one part. Gives the numbers of nodes and of neighbours in the file. */
sar_status sar_dataset_parhip(sar_handle dataset, const char *path, const DLTensor *weights, const DLTensor *assignment,
                              int32_t part, int64_t *nodes, int64_t *neighbours);
/* Writes DGL's format: <dir>/<name>.json and part<i>/. */
sar_status sar_dataset_write(sar_handle dataset, const DLTensor *assignment, int32_t parts, const char *dir,
                             const char *name, const char *method, sar_progress progress, void *user);
/* The same in SAR's format or DGL's. options is JSON: {"name", "method", "format": "sar" or "dgl", "memory": bytes that writing
 * may take, the assignment among them (0: 4 GiB), "ids": {node type: file}, "ids_dir"}; files of the users' ids, <ids_dir>/part<i>/<file>, are
 * moved into the parts. */
sar_status sar_dataset_write_parts(sar_handle dataset, const DLTensor *assignment, int32_t parts, const char *dir,
                                   const char *options, sar_progress progress, void *user);
/* The least "memory" with which parts of equal sizes can be written, in the format "sar" or "dgl". */
sar_status sar_dataset_least_memory(sar_handle dataset, int32_t parts, const char *format, int64_t *bytes);

/* ---- graphs ------------------------------------------------------------- */
enum { SAR_GRAPH_EDGE_DATA = 1 }; /* keep the order of edges from the start; else it is made when first needed */
/* The worker's part of the whole graph, from its partition. The partition handle may be closed afterwards. Collective. */
sar_status sar_graph_build(sar_handle session, sar_handle partition, uint32_t flags, sar_handle *graph);
/* The same for one relation from memory: node_start int64 [world + 1] are the ranges of node ids that each rank owns;
 * src, dst int64 [n] are the in-edges of own nodes, in the order in which edge tensors follow. Collective. */
sar_status sar_graph_from_edges(sar_handle session, const DLTensor *node_start, const DLTensor *src, const DLTensor *dst, sar_handle *graph);
/* The same for several node types and relations. types is JSON: {"node_types": [..], "edge_types": [[src, rel, dst], ..]}.
 * node_counts int64 [node types, world]: the nodes of each type that each rank owns. src[i], dst[i] int64 [n_i] are the
 * in-edges of own nodes of relation i, for i < n, in homogenized ids: all nodes of rank 0 first, in each rank one type after
 * the other. Collective. */
sar_status sar_graph_from_relations(sar_handle session, const char *types, const DLTensor *node_counts, const DLTensor *src,
                                    const DLTensor *dst, int32_t n, sar_handle *graph);
sar_status sar_graph_free(sar_handle graph);

typedef struct {
  size_t size;
  int64_t num_src, num_dst, num_edges;                 /* of this worker */
  int64_t num_src_global, num_dst_global, num_edges_global;
  int64_t num_boundary;                                /* rows this worker reads of its peers */
  int64_t num_send;                                    /* rows its peers read of it, with repetition */
  int64_t structure_bytes;
} sar_relation_info;
sar_status sar_graph_num_relations(sar_handle graph, int32_t *n);
sar_status sar_graph_relation_info(sar_handle graph, int32_t relation, sar_relation_info *out);
/* JSON: [{"peer": q, "receive_rows": n, "send_rows": n}, ..] */
sar_status sar_graph_boundary(sar_handle graph, int32_t relation, char **json);
/* Own source rows that a peer reads, in the order in which they travel: out int64 [send_rows of sar_graph_boundary]. */
sar_status sar_graph_send_rows(sar_handle graph, int32_t relation, int32_t peer, DLTensor *out);
/* out int64 [num_dst] for in-degrees (out_degrees 0), [num_src] for out-degrees over all workers (1). */
sar_status sar_graph_degrees(sar_handle graph, int32_t relation, int32_t out_degrees, DLTensor *out);

/* ---- blocks (message-flow graphs) ---------------------------------------- */
/* The edges of graph into some of its own rows, as a graph of its own in which they are the destination rows. Its source
 * rows of a node type are all rows that any worker reads over those edges, ascending; with keep_seeds the seeds of the type come
 * first, in their order.
 * Rows are numbered per type; node types and relations are those of graph. Degrees are those within the block.
 * seeds int64 [n]: own rows of graph, each once, one type after the other; seed_start int64 [node types + 1] says where each
 * type begins. A worker may have none. The block does not need graph any more. Collective. Wire: 4 bytes a boundary row. */
sar_status sar_graph_block(sar_handle graph, const DLTensor *seeds, const DLTensor *seed_start, int32_t keep_seeds, sar_handle *block);
/* How many source rows (dst 0) or destination rows (1) of each node type a block has: out int64 [node types]. */
sar_status sar_graph_block_counts(sar_handle block, int32_t dst, DLTensor *out);
/* Which own rows of the graph they are: out int64 [count of the type]. */
sar_status sar_graph_block_rows(sar_handle block, int32_t node_type, int32_t dst, DLTensor *out);
/* For every edge of a block, in the order of its edge tensors, the position of that edge in the order of the graph it was made of:
 * out int64 [num_edges]. Ascends. */
sar_status sar_graph_block_edges(sar_handle block, int32_t relation, DLTensor *out);

/* ---- message passing ---------------------------------------------------- */
enum { SAR_COPY_U = 0, SAR_U_MUL_E = 1 };
enum { SAR_REDUCE_SUM = 0, SAR_REDUCE_MEAN = 1 };
enum { SAR_GRAD_U = 1, SAR_GRAD_E = 2, SAR_FUSED = 4 };
typedef struct {
  size_t size;
  int32_t relation;
  int32_t message; /* SAR_COPY_U, SAR_U_MUL_E */
  int32_t reduce;  /* SAR_REDUCE_* */
  uint32_t need_grad; /* forward: SAR_GRAD_* that this rank will ask for, and SAR_FUSED where it offers that */
  uint32_t agreed;    /* backward: what forward agreed on */
} sar_aggregate;
/* out[i] = reduce over in-edges (j -> i) of u[j], or u[j] * e[ji]. u [num_src, w]; e [num_edges] or [num_edges, h] in
 * ascending edge id with w = h * d, head k scaling columns k*d..(k+1)*d-1; out [num_dst, w], rows without edges give 0.
 * agreed: the gradients that any rank asked for, and SAR_FUSED if every rank asked for it: then grad_out of backward is the
 * gradient of what a linear map made of out, and grad_u still has to be multiplied by that map. Collective, on SAR_COMM_TRAIN.
 * Wire: w numbers per boundary row. */
sar_status sar_aggregate_forward(sar_handle graph, const sar_aggregate *what, const DLTensor *u, const DLTensor *e, DLTensor *out, uint32_t *agreed);
/* grad_u [num_src, w] and grad_e (shape of e) from grad_out [num_dst, w]; either may be NULL where this rank does not
 * want it. u is needed for SAR_GRAD_E on every rank, e for SAR_U_MUL_E. Collective. Wire: w numbers per boundary row for each of the two. */
sar_status sar_aggregate_backward(sar_handle graph, const sar_aggregate *what, const DLTensor *u, const DLTensor *e, const DLTensor *grad_out, DLTensor *grad_u, DLTensor *grad_e);

/* ---- visits of in-edges -------------------------------------------------- */
/* Some in-edges of own rows, with the rows that they read. */
typedef struct {
  size_t size;
  int32_t peer;            /* whose rows these are */
  int64_t num_rows;        /* n */
  const void *const *rows; /* by field: [n, ..], contiguous, aligned to 8 bytes; gone when visit returns */
  void *const *grads;      /* by field: where to add gradients of the rows, zero before the first block of the same rows; NULL: none wanted */
  int64_t num_edges;       /* m: so many places of src, dst and edge are filled */
} sar_stream_block;
/* Returns 1 to go on. Anything else ends the stream and, as any failure, the session. */
typedef int32_t (*sar_stream_visit)(void *user, const sar_stream_block *block);
typedef struct {
  size_t size;
  int32_t relation;
  uint32_t flags;          /* 16 bits that every rank is told */
  int32_t num_fields;
  const DLTensor *fields;  /* [num_fields] of [num_src, ..], any dtypes; the same shapes and dtypes on every rank */
  const uint8_t *home;     /* [num_fields]: 1: its gradient returns (float); the same on every rank. NULL: none does */
  DLTensor *grads;         /* [num_fields]: to add to; shape and dtype of the field; data NULL where this rank wants none. NULL: it wants none */
  DLTensor *src, *dst, *edge; /* int64 [k], k >= 1 the most edges of a block: row in the block, own destination row (ascends in a
                            * block), position among own edges in ascending id. edge may be NULL */
  sar_stream_visit visit;
  void *user;
} sar_stream;
/* Visits every in-edge of own rows once, on the calling thread: first those from own rows, then those from each peer's
 * rows as they arrive. agreed: all ranks' flags. Collective, on SAR_COMM_TRAIN. Wire: per boundary row its fields, each
 * padded to 8 bytes, and the same back for those with a gradient. */
sar_status sar_stream_run(sar_handle graph, const sar_stream *what, uint32_t *agreed);

/* ---- sampling ------------------------------------------------------------ */
/* Draws blocks of the neighbourhood of seed nodes, layer by layer, in the background, and fetches features. Nodes have ids
 * by type, [0, n) over all workers and rank by rank (for one node type the ids of its node ranges); so do edges of a relation. */
typedef struct {
  size_t size;
  const DLTensor *fanouts;  /* int64 [layers, relations]: edges drawn per destination node, -1 for every in-edge */
  int32_t replace;          /* 1: with replacement; a node with in-edges then gets its fan-out */
  int32_t edge_ids;         /* 1: tell the ids of the edges drawn */
  int64_t cache_bytes;      /* at most so many bytes of input columns of other ranks' nodes are kept; columns must not change then. 0: none */
} sar_sample_config;
/* Collective the first time for a graph, and for a session. */
sar_status sar_sampler_create(sar_handle graph, const sar_sample_config *config, sar_handle *sampler);
/* SAR_SAMPLE_INPUT: columns of a node type that blocks have for the nodes of the first layer; OUTPUT: for the seeds; EDGE: columns
 * of a relation for the edges drawn. Any dtype, one row per own node, or per in-edge in ascending id. WEIGHT: float32 [num_edges] of
 * a relation, finite and >= 0, to draw in proportion to; one for every relation or none. */
enum { SAR_SAMPLE_INPUT = 0, SAR_SAMPLE_OUTPUT = 1, SAR_SAMPLE_EDGE = 2, SAR_SAMPLE_WEIGHT = 3 };
/* Registers a column, before the first batch; the same on every rank but for the number of rows. Its memory must last
 * until sar_sampler_free returns. */
sar_status sar_sampler_column(sar_handle sampler, int32_t what, int32_t type, const DLTensor *rows);
/* Has a batch drawn. seeds [num_types] of int64 [n]: own rows, none twice. key: of the random numbers; ranks that use the
 * same key draw the same edges for a node. Returns at once. Collective: every rank submits in the same order. */
sar_status sar_sampler_submit(sar_handle sampler, const DLTensor *seeds, int32_t num_types, uint64_t key, sar_handle *batch);
/* Waits for the batches that were submitted, which the peers count on. Batches live on. */
sar_status sar_sampler_free(sar_handle sampler);
sar_status sar_batch_wait(sar_handle batch);
/* Arrays of a batch that is there. layer 0 is the one that reads the input; its destination nodes are the source nodes of
 * layer 1. type: a node type for NODES, INPUT and OUTPUT, else a relation; column: of DATA, INPUT and OUTPUT, in the order of
 * sar_sampler_column. NODES: int64 ids of the source nodes, of which the destination nodes are the first num_dst; INDPTR, INDICES:
 * int64, the edges by destination; EDGE_IDS: int64. DATA, INPUT and OUTPUT are bytes of rows. */
enum { SAR_BATCH_NODES = 0, SAR_BATCH_INDPTR = 1, SAR_BATCH_INDICES = 2, SAR_BATCH_EDGE_IDS = 3, SAR_BATCH_DATA = 4, SAR_BATCH_INPUT = 5, SAR_BATCH_OUTPUT = 6 };
/* The memory, until sar_batch_free, and its size in bytes; num_dst may be NULL. */
sar_status sar_batch_array(sar_handle batch, int32_t layer, int32_t what, int32_t type, int32_t column, void **data, int64_t *bytes, int64_t *num_dst);
sar_status sar_batch_free(sar_handle batch);

/* ---- rows and edges by number -------------------------------------------- */
/* Columns number source rows: own rows 0..num_src-1, then the boundary rows, num_src + num_boundary in all. */
/* For each of rows, own destination rows int64 [n]: indptr int64 [n + 1], and the columns and edge positions (in ascending
 * edge id) of its in-edges, int64 [indptr[n]], ascending by edge. With columns and edges NULL it fills indptr alone. */
sar_status sar_graph_in_edges(sar_handle graph, int32_t relation, const DLTensor *rows, DLTensor *indptr, DLTensor *columns, DLTensor *edges);
/* int64 [columns]: the rank that owns each column's row, and the row's number there. Either may be NULL. Collective where
 * row is not. */
sar_status sar_graph_columns(sar_handle graph, int32_t relation, DLTensor *owner, DLTensor *row);
/* out[i] = row columns[i] of x. columns int64 [n], n of its own on every rank; x [num_src, ..], any dtype; out [n, ..].
 * flags: 16 bits that every rank is told; agreed: all ranks'. Collective, on SAR_COMM_TRAIN. Wire: the row and 4 bytes for
 * each row of a peer. */
sar_status sar_fetch_forward(sar_handle graph, int32_t relation, const DLTensor *columns, uint32_t flags, const DLTensor *x, DLTensor *out, uint32_t *agreed);
/* Adds grad_out [n, ..], float, to the rows that were fetched, in grad_x [num_src, ..] of their owners; NULL where this
 * rank wants none. Collective. */
sar_status sar_fetch_backward(sar_handle graph, int32_t relation, const DLTensor *columns, const DLTensor *grad_out, DLTensor *grad_x);

/* ---- edge expressions ---------------------------------------------------- */
/* What a message is made of, as a straight-line program in JSON:
 *  {"operands": [{"side": "u" | "v" | "e" | "p", "shape": [..]}, ..],       at most 16; shapes without the first dimension
 *   "code": [{"op": name, "a": register, "b": register, "alpha": number, "shape": [..]}, ..],
 *   "result": register, "reduce": "none" | "sum" | "mean" | "max" | "min" | "max_shared" | "min_shared"}
 * Registers are the operands, then one an instruction. Binary: add sub mul div dot, which broadcast from the right; dot sums
 * the last dimension and keeps it as 1. Unary: neg relu leaky_relu elu exp log sqrt sigmoid tanh softplus abs reciprocal, and
 * with alpha: scale shift rsub (alpha - a) pow clamp_min clamp_max clamp_min_open clamp_max_open (of gradient 0 at the bound), leaky_relu, elu, dropout (alpha: probability). With shape:
 * total (sums into it), reshape. softmax: over the in-edges of each destination. Errors name the instruction and the shapes. */
sar_status sar_program_create(const char *json, sar_handle *program);
/* JSON: {"shape": of the result, "softmaxes": [width, ..], "seeds": dropouts, "winner": whether max or min, "collective": whether
 * it has operands of side u} */
sar_status sar_program_info(sar_handle program, char **json);
sar_status sar_program_free(sar_handle program);
typedef struct {
  size_t size;
  int32_t relation;
  uint32_t need_grad;      /* bit i: this rank wants the gradient of operand i */
  uint32_t agreed;         /* backward: what forward agreed on */
  int32_t num_seeds;
  const uint64_t *seeds;   /* one for each dropout in the order of code, the same on all ranks */
  const DLTensor *keys;    /* int64 [num_edges], what dropout knows an edge by, or NULL: key_base + position */
  int64_t key_base;
} sar_program_call;
/* operands: float, one for each of the program: u [num_src, ..], v [num_dst, ..], e [num_edges, ..] in ascending edge id, p [1, ..].
 * state: for each softmax what its arguments are relative to and the inverses of its sums, float [num_dst, width] each, then for max and min the winning
 * edges, int32 [num_dst, ..], or for max_shared and min_shared, which divide the gradient among equal messages, how many there are; filled for backward. out: [num_dst, ..], without a reducer [num_edges, ..]. Rows without edges give 0,
 * as do infinite results of max and min, where NaN never wins; with max_shared and min_shared NaN wins, and infinite results stay. agreed: the operands that any rank wants a gradient of; saves: the operands that backward
 * reads, and out as bit 31. Collective, on SAR_COMM_TRAIN, where there are operands of side u. Wire, for each sweep (one, and one
 * for each level of softmaxes that cannot join it): the widths of the operands of side u that it reads, per boundary row. */
sar_status sar_program_forward(sar_handle graph, sar_handle program, const sar_program_call *what, const DLTensor *operands, int32_t num_operands,
                               DLTensor *state, int32_t num_state, DLTensor *out, uint32_t *agreed, uint32_t *saves);
/* grads: for each operand in need_grad its gradient, of its shape. Tensors that are not needed have no elements. The same
 * seeds and keys as forward. Collective like forward. */
sar_status sar_program_backward(sar_handle graph, sar_handle program, const sar_program_call *what, const DLTensor *operands, int32_t num_operands,
                                DLTensor *state, int32_t num_state, const DLTensor *out, const DLTensor *grad_out, DLTensor *grads, int32_t num_grads);

/* ---- kernels on their own, without a session ---------------------------- */
/* y[i, :] = sum over k in [indptr[i], indptr[i+1]) of w[k] * x[indices[k], :]. indptr int64 [n + 1], indices int32, w float [nnz] or [nnz, h] or NULL. */
sar_status sar_kernel_spmm(const DLTensor *indptr, const DLTensor *indices, const DLTensor *w, const DLTensor *x, DLTensor *y);
/* A matrix that is multiplied many times: checked and copied once, and put into an order in which its products are faster
 * where it is square and has one. indptr int64 [n + 1], indices int32 [nnz], below num_cols. 4 bytes an entry and 8 a row,
 * 20 a row with an order, until it is freed. */
sar_status sar_matrix_create(const DLTensor *indptr, const DLTensor *indices, int64_t num_cols, sar_handle *matrix);
/* The product of sar_kernel_spmm, the same to the bit. x has num_cols rows; w is in the order of indices. */
sar_status sar_matrix_spmm(sar_handle matrix, const DLTensor *w, const DLTensor *x, DLTensor *y);
/* Waits for products in progress. */
sar_status sar_matrix_free(sar_handle matrix);
/* out[k, h] = sum over d of x[indices[k], h, d] * g[i, h, d] for slot k of row i. */
sar_status sar_kernel_sddmm(const DLTensor *indptr, const DLTensor *indices, const DLTensor *x, const DLTensor *g, DLTensor *out);

/* ---- columns: what batch normalization is made of, on own rows ----------- */
/* x is float [n, f]; numbers of columns are of its type, sums of columns float64 [2, f]. Where x is normalized, by
 * s[i, j] = (x[i, j] - columns[0, j]) * columns[1, j] + columns[2, j]; with relu != 0 it becomes 0 where it is not above 0 (NaN
 * stays), and so do gradients of it. Sums add up in one order, whatever the number of threads. */
/* out[0, j]: mean over i of x[i, j]; out[1, j]: sum over i of (x[i, j] - mean)^2; zeros where there are no rows */
sar_status sar_column_moments(const DLTensor *x, DLTensor *out);
/* A hash of the bytes of x, of any shape and dtype, contiguous: the same for every number of threads. */
sar_status sar_checksum(const DLTensor *x, uint64_t *out);
/* out[i, j] = s[i, j]; columns [3, f]; out may be x */
sar_status sar_normalize(const DLTensor *x, const DLTensor *columns, int32_t relu, DLTensor *out);
/* out[0, j]: sum over i of grad[i, j]; out[1, j]: sum over i of grad[i, j] * (x[i, j] - columns[0, j]); columns [3, f] */
sar_status sar_normalize_sums(const DLTensor *grad, const DLTensor *x, const DLTensor *columns, int32_t relu, DLTensor *out);
/* grad_x[i, j] = grad[i, j] * columns[1, j] + (x[i, j] - columns[0, j]) * columns[3, j] + columns[4, j]; columns [5, f]; grad_x may be grad */
sar_status sar_normalize_grad(const DLTensor *grad, const DLTensor *x, const DLTensor *columns, int32_t relu, DLTensor *grad_x);

#ifdef __cplusplus
}
#endif
#endif /* SAR_H */
