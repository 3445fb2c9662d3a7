#include "worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void free_link(struct loop *l, struct link *link)
{
	link->worker->carrier->detach(l, link);
	free(link);
}

void finish(struct loop *l, struct request *r, sar_status status, const char *text)
{
	struct link *link = r->link;
	*r->self = r->next;
	if (r->next)
		r->next->self = r->self;
	l->busy--;
	link->worker->done(r->id, status, text);
	free(r);
	if (link->leaving && !link->held && !link->requests)
		free_link(l, link);
}

void cancel_receives(struct loop *l, struct link *link)
{
	for (struct request *r = link->requests, *next; r; r = next) {
		next = r->next; // r may be gone once it is cancelled, and the link with the last one
		if (!r->sends)
			link->worker->carrier->cancel(l, r);
	}
}

static void run_request(struct loop *l, struct task *t)
{
	struct request *r = (struct request *)t;
	struct link *link = r->link;
	r->next = link->requests;
	r->self = &link->requests;
	if (r->next)
		r->next->self = &r->next;
	link->requests = r;
	l->busy++;
	link->worker->carrier->start(l, r);
}

static void post(struct link *link, struct request request)
{
	struct request *r = malloc(sizeof *r);
	if (!r) {
		link->worker->done(request.id, SAR_ERR_BUDGET, "out of memory");
		return;
	}
	*r = request;
	r->task.run = run_request;
	r->link = link;
	loop_hand(link->worker->loop, &r->task);
}

void worker_send(void *link, const void *buffer, size_t bytes, void *memory, uint64_t request)
{
	post(link, (struct request){.buffer = (void *)buffer, .bytes = bytes, .memory = memory, .id = request, .sends = true});
}

void worker_receive(void *link, void *buffer, size_t bytes, void *memory, uint64_t request)
{
	post(link, (struct request){.buffer = buffer, .bytes = bytes, .memory = memory, .id = request});
}

static void run_leave(struct loop *l, struct task *t)
{
	struct link *link = (struct link *)t;
	link->leaving = link->held = true;
	cancel_receives(l, link);
	if (link->requests)
		link->worker->carrier->revoke(l, link);
	link->held = false;
	if (!link->requests)
		free_link(l, link);
}

void worker_disconnect(void *made)
{
	struct link *link = made;
	link->leave.run = run_leave;
	loop_hand(link->worker->loop, &link->leave);
}

struct connecting {
	struct call call;
	struct link *link;
	const sar_transport_peer *peer;
	char *text;
	int failed;
};

static void run_connect(struct loop *l, struct task *t)
{
	struct connecting *c = (struct connecting *)t;
	c->failed = c->link->worker->carrier->connect(l, c->link, c->peer, c->text);
	loop_called(&c->call);
}

sar_status worker_connect(void *worker, const sar_transport_peer *peer, void **made, char *text)
{
	struct worker *w = worker;
	struct link *link = calloc(1, sizeof *link);
	if (!link) {
		snprintf(text, SAR_TRANSPORT_TEXT, "out of memory");
		return SAR_ERR_BUDGET;
	}
	link->worker = w;
	struct connecting c = {.call.task.run = run_connect, .link = link, .peer = peer, .text = text};
	loop_call(w->loop, &c.call);
	if (c.failed) {
		free(link);
		return SAR_ERR_IO;
	}
	*made = link;
	return SAR_OK;
}

struct addressing {
	struct call call;
	const struct carrier *carrier;
	uint8_t *to;
	size_t bytes;
};

static void run_address(struct loop *l, struct task *t)
{
	struct addressing *a = (struct addressing *)t;
	a->bytes = a->carrier->address(l, a->to, SAR_TRANSPORT_ADDRESS);
	loop_called(&a->call);
}

// loop_for returns the loop of a worker: one of its own, or that of all.
static struct loop *loop_for(const struct carrier *c, char *text)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct loop *common;
	struct loop *l = NULL;
	if (c->shared)
		pthread_mutex_lock(&lock);
	if (!c->shared || !common)
		loop_open(&c->driver, c->start_ns, &l, text, SAR_TRANSPORT_TEXT);
	if (c->shared) {
		l = common = common ? common : l;
		pthread_mutex_unlock(&lock);
	}
	return l;
}

sar_status worker_open(const struct carrier *c, const sar_transport_worker *about, void **made, uint8_t *address,
	size_t *address_bytes, char *text)
{
	struct worker *w = malloc(sizeof *w);
	struct loop *l = loop_for(c, text);
	if (!w || !l) {
		free(w);
		return SAR_ERR_IO;
	}
	*w = (struct worker){c, l, about->done};
	struct addressing a = {.call.task.run = run_address, .carrier = c, .to = address};
	loop_call(l, &a.call);
	if (a.bytes > SAR_TRANSPORT_ADDRESS) {
		snprintf(text, SAR_TRANSPORT_TEXT,
			"the address of this worker has %zu bytes, at most %d are allowed: have the library use fewer devices",
			a.bytes, SAR_TRANSPORT_ADDRESS);
		worker_close(w);
		return SAR_ERR_IO;
	}
	*address_bytes = a.bytes;
	*made = w;
	return SAR_OK;
}

static void run_nothing(struct loop *l, struct task *t)
{
	(void)l;
	loop_called((struct call *)t);
}

void worker_close(void *made)
{
	struct worker *w = made;
	if (w->carrier->shared) // links that are still to be freed look at w
		loop_call(w->loop, &(struct call){.task.run = run_nothing});
	else
		loop_close(w->loop);
	free(w);
}
