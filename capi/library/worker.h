// The table of functions in sar.h, on top of a loop. What UCX and MPI have in common is here: the
// list of requests that a link has in progress, their completion, and the end of a link.
#ifndef SAR_LIBRARY_WORKER_H
#define SAR_LIBRARY_WORKER_H

#include "loop.h"
#include "sar.h"

struct link;

struct request {
	struct task task;
	struct link *link;
	struct request *next, **self; // in the link's list; self is what points here
	void *buffer;
	size_t bytes;
	void *memory; // the buffer's registration
	uint64_t id;
	bool sends;
	void *handle; // the library's
};

struct worker;

struct link {
	struct task leave;
	struct worker *worker;
	struct request *requests;
	bool leaving; // disconnected
	bool held;    // in use: not to be freed
	void *to;     // the library's
	struct link *next;
	uint64_t send_tag, receive_tag;
};

// What a library does for links. All run on the loop's thread.
struct carrier {
	struct driver driver;
	int64_t start_ns; // how long open may take
	bool shared;      // one loop serves all workers of the process, to its end
	// address writes where this worker is reached and returns the size of that, whether it fits or not.
	size_t (*address)(struct loop *, uint8_t *to, size_t bytes);
	// connect fills in to, send_tag and receive_tag: 0, or -1 with a text in why, of SAR_TRANSPORT_TEXT bytes.
	int (*connect)(struct loop *, struct link *, const sar_transport_peer *, char *why);
	void (*detach)(struct loop *, struct link *); // before the link is freed
	// start posts a request, for which finish is called at once or later.
	void (*start)(struct loop *, struct request *);
	// cancel has receives finish if they can.
	void (*cancel)(struct loop *, struct request *);
	// revoke has what is left of a link finish, whatever the peer does, where the library can do that.
	void (*revoke)(struct loop *, struct link *);
};

// A worker is what one rank has of the library.
struct worker {
	const struct carrier *carrier;
	struct loop *loop;
	sar_transport_done done;
};

// finish completes a request, which is gone then, and so may its link be. text is NULL for SAR_OK.
void finish(struct loop *, struct request *, sar_status, const char *text);

// cancel_receives has those of a link finish that can.
void cancel_receives(struct loop *, struct link *);

// The functions of the table. The library is loaded already.
sar_status worker_open(const struct carrier *, const sar_transport_worker *about, void **worker, uint8_t *address,
	size_t *address_bytes, char *text);
void worker_close(void *worker);
sar_status worker_connect(void *worker, const sar_transport_peer *peer, void **link, char *text);
void worker_send(void *link, const void *buffer, size_t bytes, void *memory, uint64_t request);
void worker_receive(void *link, void *buffer, size_t bytes, void *memory, uint64_t request);
void worker_disconnect(void *link);

#endif
