// MPI as a transport, for machines on which nothing else reaches the network. One thread calls
// MPI for all workers of the process, on a copy of MPI_COMM_WORLD, so messages of the script's
// are never mistaken for ours. A message is told from those of other links by its source and its
// tag, the number of the link at its receiver.
//
// MPI knows no deadlines and cannot take back what is sent. A send whose receiver has gone stays
// in progress for the rest of the process, and so does the link.
#define _GNU_SOURCE
#include "mpi.h"
#include "mpi_abi.h"
#include "worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define MEMBER(name, parameters) int(*name) parameters;
static struct {
	MPI_FUNCTIONS(MEMBER)
} mpi;

#define SYMBOL(name, parameters) {#name, (void **)&mpi.name},
static const struct symbol symbols[] = {MPI_FUNCTIONS(SYMBOL){NULL, NULL}};

// What libraries below MPI do to a process by default and may not do to one with Go's runtime in
// it: handlers for signals, and patches of the functions that map memory.
static const struct setting settings[] = {
	{"UCX_ERROR_SIGNALS", "", 1},
	{"UCX_MEM_EVENTS", "n", 1},
	{"UCX_MEM_MMAP_HOOK_MODE", "none", 1},
	{"UCX_MEM_MALLOC_HOOKS", "n", 1},
	{"FI_MR_CACHE_MONITOR", "disabled", 1},
	{"OMPI_MCA_memory", "^patcher", 1},
	{NULL, NULL, 0},
};

static int suits(char *why, size_t bytes)
{
	int major = -1, minor = -1;
	if (!mpi.MPI_Abi_get_version(&major, &minor) && major == MPI_ABI_MAJOR)
		return 0;
	snprintf(why, bytes, "the MPI library has version %d.%d of the binary interface: SAR takes %d.x",
		major, minor, MPI_ABI_MAJOR);
	return -1;
}

struct library mpi_library = {
	.name = "MPI",
	.variable = "SAR_MPI_LIB",
	.file = "libmpi_abi.so.1",
	.install = "install an MPI with the binary interface of MPI 5, as pip install mpich does",
	.settings = settings,
	.symbols = symbols,
	.suits = suits,
};

// What a process has of MPI.
static struct {
	struct loop *loop;
	mpi_comm world;
	int rank, size, largest_tag;
	uint8_t id[16];    // of this world: random, the same on all its ranks
	bool initialized;  // here, not by the script
	bool failed;       // a request has: others may wait for ever
	// Requests in progress: what MPI and what we have of each.
	mpi_request *handles;
	struct request **requests;
	int *indices;
	struct mpi_status *statuses;
	int count, room;
} state;

static const char *explain(int code)
{
	static char text[MPI_MAX_ERROR_STRING + 1]; // the thread's alone
	int length;
	if (mpi.MPI_Error_string(code, text, &length))
		snprintf(text, sizeof text, "error %d", code);
	return text;
}

static int trouble(struct loop *l, const char *doing, int code)
{
	snprintf(l->why, sizeof l->why, "MPI cannot %s: %.400s", doing, explain(code));
	return -1;
}

// settle waits for what all ranks take part in. Whoever opens the loop does so for a bounded time.
static int settle(mpi_request *r)
{
	for (int done = 0;;) {
		int bad = mpi.MPI_Test(r, &done, NULL);
		if (bad || done)
			return bad;
		nanosleep(&(struct timespec){0, 1000000}, NULL);
	}
}

static int begin(struct loop *l)
{
	int is = 0, over = 0, threads = 0, bad;
	mpi.MPI_Finalized(&over);
	if (over) {
		snprintf(l->why, sizeof l->why, "MPI has been finalized in this process: call MPI_Finalize after sar.shutdown()");
		return -1;
	}
	mpi.MPI_Initialized(&is);
	if ((bad = is ? mpi.MPI_Query_thread(&threads) : mpi.MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &threads)))
		return trouble(l, "start", bad);
	state.initialized = !is;
	if (threads < MPI_THREAD_MULTIPLE) {
		snprintf(l->why, sizeof l->why, "MPI has no more than thread level %d of %d here: %s MPI_THREAD_MULTIPLE",
			threads, MPI_THREAD_MULTIPLE, is ? "the script has to initialize it with" : "take an MPI that was built with");
		return -1;
	}
	if (state.initialized) { // errors that belong to no communicator of ours
		mpi.MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
		mpi.MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
	}
	mpi_request r;
	int *bound, found = 0;
	if ((bad = mpi.MPI_Comm_idup(MPI_COMM_WORLD, &state.world, &r)) || (bad = settle(&r)))
		return trouble(l, "copy MPI_COMM_WORLD", bad);
	mpi.MPI_Comm_set_errhandler(state.world, MPI_ERRORS_RETURN);
	mpi.MPI_Comm_rank(state.world, &state.rank);
	mpi.MPI_Comm_size(state.world, &state.size);
	state.largest_tag = !mpi.MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &found) && found ? *bound : 32767;
	if (getrandom(state.id, sizeof state.id, 0) != sizeof state.id) {
		snprintf(l->why, sizeof l->why, "MPI: out of random numbers");
		return -1;
	}
	if ((bad = mpi.MPI_Ibcast(state.id, sizeof state.id, MPI_BYTE, 0, state.world, &r)) || (bad = settle(&r)))
		return trouble(l, "reach the other ranks", bad);
	state.loop = l;
	return 0;
}

static void stop(struct loop *l) { (void)l; } // the loop lives as long as the process does

static size_t address(struct loop *l, uint8_t *to, size_t bytes)
{
	uint32_t rank = state.rank;
	(void)l;
	if (sizeof state.id + sizeof rank <= bytes) {
		memcpy(to, state.id, sizeof state.id);
		memcpy(to + sizeof state.id, &rank, sizeof rank);
	}
	return sizeof state.id + sizeof rank;
}

static int join(struct loop *l, struct link *link, const sar_transport_peer *peer, char *why)
{
	uint32_t rank;
	(void)l;
	if (peer->address_bytes != sizeof state.id + sizeof rank || memcmp(peer->address, state.id, sizeof state.id)) {
		snprintf(why, SAR_TRANSPORT_TEXT,
			"rank %d is not in the MPI world of this process, which has %d rank(s): start all workers by one mpiexec",
			peer->rank, state.size);
		return -1;
	}
	memcpy(&rank, peer->address + sizeof state.id, sizeof rank);
	if (rank >= (uint32_t)state.size) {
		snprintf(why, SAR_TRANSPORT_TEXT, "rank %d claims to be rank %u of %d in MPI", peer->rank, rank, state.size);
		return -1;
	}
	if (peer->send_tag > (uint32_t)state.largest_tag || peer->receive_tag > (uint32_t)state.largest_tag) {
		snprintf(why, SAR_TRANSPORT_TEXT, "this MPI has no more tags than %d for links, which are used up",
			state.largest_tag);
		return -1;
	}
	link->to = (void *)(uintptr_t)rank;
	link->send_tag = peer->send_tag;
	link->receive_tag = peer->receive_tag;
	return 0;
}

static void leave(struct loop *l, struct link *link)
{
	(void)l;
	(void)link;
}

static bool more_room(void)
{
	int room = state.room ? 2 * state.room : 64;
	void *handles = realloc(state.handles, room * sizeof *state.handles);
	state.handles = handles ? handles : state.handles;
	void *requests = realloc(state.requests, room * sizeof *state.requests);
	state.requests = requests ? requests : state.requests;
	void *indices = realloc(state.indices, room * sizeof *state.indices);
	state.indices = indices ? indices : state.indices;
	void *statuses = realloc(state.statuses, room * sizeof *state.statuses);
	state.statuses = statuses ? statuses : state.statuses;
	if (!handles || !requests || !indices || !statuses)
		return false;
	state.room = room;
	return true;
}

static void fail(struct loop *l, struct request *r, int code)
{
	state.failed = true;
	finish(l, r, SAR_ERR_PEER_LOST, explain(code));
}

static void post(struct loop *l, struct request *r)
{
	struct link *link = r->link;
	if (state.count == state.room && !more_room()) {
		finish(l, r, SAR_ERR_BUDGET, "MPI: out of memory");
		return;
	}
	mpi_request *handle = &state.handles[state.count];
	int peer = (int)(uintptr_t)link->to;
	int bad = r->sends ? mpi.MPI_Isend(r->buffer, r->bytes, MPI_BYTE, peer, link->send_tag, state.world, handle)
			   : mpi.MPI_Irecv(r->buffer, r->bytes, MPI_BYTE, peer, link->receive_tag, state.world, handle);
	if (bad)
		fail(l, r, bad);
	else
		state.requests[state.count++] = r;
}

// over completes a request that MPI is done with.
static void over(struct loop *l, struct request *r, int error, const struct mpi_status *status)
{
	int cancelled = 0, bytes = 0;
	if (!error && !r->sends) {
		mpi.MPI_Test_cancelled(status, &cancelled);
		mpi.MPI_Get_count(status, MPI_BYTE, &bytes);
	}
	if (error)
		fail(l, r, error);
	else if (cancelled)
		finish(l, r, SAR_ERR_CLOSED, "the link is disconnected");
	else if (!r->sends && (size_t)bytes != r->bytes)
		finish(l, r, SAR_ERR_SCHEDULE, "MPI: a message of another size than the one that is due");
	else
		finish(l, r, SAR_OK, NULL);
}

// remove_done closes the gaps that requests which are done leave.
static void remove_done(void)
{
	int kept = 0;
	for (int i = 0; i < state.count; i++) {
		if (state.requests[i]) {
			state.requests[kept] = state.requests[i];
			state.handles[kept++] = state.handles[i];
		}
	}
	state.count = kept;
}

static unsigned progress(struct loop *l)
{
	int done = 0;
	if (!state.count)
		return 0;
	int bad = mpi.MPI_Testsome(state.count, state.handles, &done, state.indices, state.statuses);
	if (bad && bad != MPI_ERR_IN_STATUS) { // none of them can be trusted to end any more
		done = state.count;
		for (int i = 0; i < done; i++)
			state.indices[i] = i;
	}
	if (done <= 0) // also MPI_UNDEFINED
		return 0;
	for (int i = 0; i < done; i++) {
		struct request *r = state.requests[state.indices[i]];
		state.requests[state.indices[i]] = NULL;
		over(l, r, bad == MPI_ERR_IN_STATUS ? state.statuses[i].error : bad, &state.statuses[i]);
	}
	remove_done();
	return done;
}

static void cancel(struct loop *l, struct request *r)
{
	(void)l;
	for (int i = 0; i < state.count; i++)
		if (state.requests[i] == r)
			mpi.MPI_Cancel(&state.handles[i]);
}

static void revoke(struct loop *l, struct link *link)
{
	(void)l;
	(void)link;
	state.failed = true;
}

static const struct carrier carrier = {
	.driver = {.name = "mpi", .open = begin, .close = stop, .progress = progress},
	.start_ns = INT64_C(120000000000),
	.shared = true,
	.address = address,
	.connect = join,
	.detach = leave,
	.start = post,
	.cancel = cancel,
	.revoke = revoke,
};

// A process that has initialized MPI finalizes it when it ends, once its links have closed, and then
// waits for the other processes, as every MPI program does. If something has failed it does not, for
// that could take for ever: a launcher that sees a process leave without MPI_Finalize ends the job.
static const int64_t closing_ns = INT64_C(7000000000); // longer than links take

struct ending {
	struct call call;
	bool later; // requests are in progress
};

static void run_finalize(struct loop *l, struct task *t)
{
	struct ending *e = (struct ending *)t;
	(void)l;
	e->later = state.count > 0 && !state.failed;
	if (!e->later && !(state.failed && state.size > 1))
		mpi.MPI_Finalize();
	loop_called(&e->call);
}

void mpi_end(void)
{
	struct ending e = {.call.task.run = run_finalize, .later = true};
	int over = 0;
	if (!state.loop || !state.initialized || mpi.MPI_Finalized(&over) || over)
		return;
	for (int64_t end = now_ns() + closing_ns; e.later && now_ns() < end;) {
		loop_call(state.loop, &e.call);
		if (e.later)
			nanosleep(&(struct timespec){0, 1000000}, NULL);
	}
}

static void register_exit(void) { atexit(mpi_end); }

static sar_status mpi_open(void *user, const sar_transport_worker *about, void **worker, uint8_t *address,
	size_t *bytes, char *text)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	(void)user;
	if (library_open(&mpi_library, text, SAR_TRANSPORT_TEXT))
		return SAR_ERR_IO;
	sar_status bad = worker_open(&carrier, about, worker, address, bytes, text);
	if (!bad)
		pthread_once(&once, register_exit);
	return bad;
}

static sar_status mpi_probe(void *user, int32_t *automatic, char *text)
{
	char version[MPI_MAX_LIBRARY_VERSION_STRING];
	int length;
	(void)user;
	*automatic = 0;
	if (!text)
		return SAR_OK;
	if (library_open(&mpi_library, text, SAR_TRANSPORT_TEXT))
		return SAR_ERR_IO;
	if (mpi.MPI_Get_library_version(version, &length))
		return SAR_ERR_IO;
	for (char *c = version; *c; c++) // "MPICH Version:      5.0.2" and more lines, or "Open MPI v5.0.8, ..."
		*c = *c == '\t' ? ' ' : *c;
	version[strcspn(version, "\n")] = 0;
	char *colon = strchr(version, ':'), *number = colon ? colon + 1 + strspn(colon + 1, " ") : NULL;
	if (number)
		snprintf(text, SAR_TRANSPORT_TEXT, "%.*s %.100s, %.256s", (int)(colon - version), version, number,
			library_path(&mpi_library));
	else
		snprintf(text, SAR_TRANSPORT_TEXT, "%.150s, %.256s", version, library_path(&mpi_library));
	return SAR_OK;
}

const sar_transport *mpi_table(void)
{
	static const sar_transport table = {
		.size = sizeof table,
		.name = "mpi",
		.probe = mpi_probe,
		.open = mpi_open,
		.close = worker_close,
		.connect = worker_connect,
		.send = worker_send,
		.receive = worker_receive,
		.disconnect = worker_disconnect,
	};
	return &table;
}
