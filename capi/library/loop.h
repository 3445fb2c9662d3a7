// A loop is the one thread that calls a communication library. Other threads hand it tasks. So the
// library is never entered by two threads, needs no locks of its own, and no thread of Go's runs
// its code. The thread takes no signals, nor does one that the library starts: those are Go's.
#ifndef SAR_LIBRARY_LOOP_H
#define SAR_LIBRARY_LOOP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct loop;

// A task is run once by the thread, in the order in which tasks came.
struct task {
	struct task *next;
	void (*run)(struct loop *, struct task *);
};

// What the thread of a library does.
struct driver {
	const char *name;
	// open makes the library ready, 0 for success, else with a text in loop.why. close lets go
	// of it, also after open has failed halfway.
	int (*open)(struct loop *);
	void (*close)(struct loop *);
	// progress moves data and returns how much there was to do, 0 for nothing.
	unsigned (*progress)(struct loop *);
	// arm returns true once loop.fd becomes readable when there is something to do, false where
	// there may be something to do now. A driver without arm is asked again after a while.
	bool (*arm)(struct loop *);
};

struct loop {
	const struct driver *driver;
	void *state;    // the driver's
	int fd;         // the driver's, -1 without one
	unsigned busy;  // requests in progress. The thread's alone
	char why[512];  // what went wrong in open

	pthread_t thread;
	pthread_mutex_t lock; // of first, last and stopping
	struct task *first, **last;
	bool stopping;
	atomic_bool asleep;
	int wake_fd;
	atomic_int opened;
};

// loop_open starts the thread and waits until the driver is open: 0, or an errno with a text in why.
// After ETIMEDOUT the thread is left to itself, as what it hangs in cannot be interrupted.
int loop_open(const struct driver *, int64_t timeout_ns, struct loop **, char *why, size_t bytes);

// loop_close ends the thread, which runs before what it was handed.
void loop_close(struct loop *);

void loop_hand(struct loop *, struct task *);

// loop_call hands over a task and waits until it has said, by loop_called, that it has run.
struct call {
	struct task task;
	atomic_int done;
};
void loop_call(struct loop *, struct call *);
void loop_called(struct call *);

int64_t now_ns(void);

#endif
