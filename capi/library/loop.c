#define _GNU_SOURCE
#include "loop.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// looks_in_vain are those before the thread sleeps. A library without a descriptor is looked
// after again when nap_least is over, twice as long each time up to nap_most, while it is busy.
enum { looks_in_vain = 100 };
static const long nap_least = 20 * 1000, nap_most = 500 * 1000;

int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

// await waits until *word is no longer 0: true, or false when the time is over.
static bool await(atomic_int *word, int64_t timeout_ns)
{
	int64_t end = timeout_ns < 0 ? 0 : now_ns() + timeout_ns;
	while (!atomic_load(word)) {
		struct timespec left, *limit = NULL;
		if (timeout_ns >= 0) {
			int64_t ns = end - now_ns();
			if (ns <= 0)
				return atomic_load(word);
			left = (struct timespec){ns / 1000000000, ns % 1000000000};
			limit = &left;
		}
		syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 0, limit, NULL, 0);
	}
	return true;
}

static void tell(atomic_int *word, int value)
{
	atomic_store(word, value);
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void wake(struct loop *l)
{
	if (atomic_exchange(&l->asleep, false)) {
		uint64_t one = 1;
		(void)!write(l->wake_fd, &one, sizeof one);
	}
}

void loop_hand(struct loop *l, struct task *t)
{
	t->next = NULL;
	pthread_mutex_lock(&l->lock);
	*l->last = t;
	l->last = &t->next;
	pthread_mutex_unlock(&l->lock);
	wake(l);
}

void loop_call(struct loop *l, struct call *c)
{
	atomic_store(&c->done, 0);
	loop_hand(l, &c->task);
	await(&c->done, -1);
}

void loop_called(struct call *c) { tell(&c->done, 1); }

// work runs the tasks that came, and says how many they were and whether the loop is to end.
static unsigned work(struct loop *l, bool *stopping)
{
	pthread_mutex_lock(&l->lock);
	struct task *t = l->first;
	l->first = NULL;
	l->last = &l->first;
	*stopping = l->stopping;
	pthread_mutex_unlock(&l->lock);
	unsigned count = 0;
	for (struct task *next; t; t = next, count++) {
		next = t->next; // a task may be gone once it has run
		t->run(l, t);
	}
	return count;
}

static bool nothing_came(struct loop *l)
{
	pthread_mutex_lock(&l->lock);
	bool none = !l->first && !l->stopping;
	pthread_mutex_unlock(&l->lock);
	return none;
}

// rest sleeps until there may be something to do. nap is how long it slept last, 0 after work.
static void rest(struct loop *l, long *nap)
{
	struct pollfd fds[] = {{.fd = l->wake_fd, .events = POLLIN}, {.fd = l->fd, .events = POLLIN}};
	bool (*arm)(struct loop *) = l->driver->arm;
	struct timespec t, *limit = NULL;
	if (!arm && l->busy) {
		*nap = *nap ? (2 * *nap < nap_most ? 2 * *nap : nap_most) : nap_least;
		t = (struct timespec){0, *nap};
		limit = &t;
	}
	atomic_store(&l->asleep, true); // from here on who hands over a task writes to wake_fd
	if (nothing_came(l) && (!arm || arm(l)) && ppoll(fds, l->fd < 0 ? 1 : 2, limit, NULL) > 0 && fds[0].revents) {
		uint64_t count;
		(void)!read(l->wake_fd, &count, sizeof count);
	}
	atomic_store(&l->asleep, false);
}

enum { is_open = 1, failed };

static void *run(void *argument)
{
	struct loop *l = argument;
	if (l->driver->open(l)) {
		l->driver->close(l);
		tell(&l->opened, failed);
		return NULL;
	}
	tell(&l->opened, is_open);
	long nap = 0;
	for (unsigned idle = 0;;) {
		bool stopping;
		if (work(l, &stopping) + l->driver->progress(l)) {
			idle = 0;
			nap = 0;
		} else if (stopping) {
			break;
		} else if (++idle >= looks_in_vain) {
			rest(l, &nap);
			idle = l->driver->arm ? 0 : idle;
		}
	}
	l->driver->close(l);
	return NULL;
}

static void drop(struct loop *l)
{
	close(l->wake_fd);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

int loop_open(const struct driver *d, int64_t timeout_ns, struct loop **made, char *why, size_t bytes)
{
	struct loop *l = calloc(1, sizeof *l);
	if (!l) {
		snprintf(why, bytes, "%s: out of memory", d->name);
		return ENOMEM;
	}
	l->driver = d;
	l->fd = -1;
	l->last = &l->first;
	pthread_mutex_init(&l->lock, NULL);
	l->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int bad = l->wake_fd < 0 ? errno : 0;
	if (!bad) {
		sigset_t all, before;
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &before); // which the thread inherits, and what it starts
		bad = pthread_create(&l->thread, NULL, run, l);
		pthread_sigmask(SIG_SETMASK, &before, NULL);
	}
	if (bad) {
		snprintf(why, bytes, "%s: %s", d->name, strerror(bad));
		drop(l);
		return bad;
	}
	char name[16];
	snprintf(name, sizeof name, "sar-%s", d->name);
	pthread_setname_np(l->thread, name);
	if (!await(&l->opened, timeout_ns)) {
		snprintf(why, bytes, "%s did not start within %d s", d->name, (int)(timeout_ns / 1000000000));
		pthread_detach(l->thread);
		return ETIMEDOUT;
	}
	if (atomic_load(&l->opened) == failed) {
		pthread_join(l->thread, NULL);
		snprintf(why, bytes, "%s", l->why);
		drop(l);
		return EIO;
	}
	*made = l;
	return 0;
}

void loop_close(struct loop *l)
{
	pthread_mutex_lock(&l->lock);
	l->stopping = true;
	pthread_mutex_unlock(&l->lock);
	wake(l);
	pthread_join(l->thread, NULL);
	drop(l);
}
