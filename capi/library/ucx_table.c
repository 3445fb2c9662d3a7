// The table of UCX, and what it tells people of itself.
#define _GNU_SOURCE
#include "ucx.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// has_device tells whether the system has devices that UCX reaches past the kernel.
static bool has_device(void)
{
	DIR *d = opendir("/sys/class/infiniband");
	bool found = false;
	for (struct dirent *e; d && !found && (e = readdir(d));)
		found = e->d_name[0] != '.';
	if (d)
		closedir(d);
	return found;
}

// is_remote tells whether a transport's name is of one that moves data past both kernels.
static bool is_remote(const char *name)
{
	static const char *const kinds[] = {"rc_", "dc_", "ud_", "srd", NULL};
	for (const char *const *k = kinds; *k; k++)
		if (!strncmp(name, *k, strlen(*k)))
			return true;
	return false;
}

// in_use is a worker's loop, to tell what its endpoints use.
static struct {
	pthread_mutex_t lock; // held while the loop is asked, so that it is there
	struct loop *loop;
} in_use = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void use(struct loop *before, struct loop *now)
{
	pthread_mutex_lock(&in_use.lock);
	if (in_use.loop == before)
		in_use.loop = now;
	pthread_mutex_unlock(&in_use.lock);
}

static sar_status ucx_open(void *user, const sar_transport_worker *about, void **worker, uint8_t *address, size_t *bytes, char *text)
{
	(void)user;
	if (library_open(&ucx_library, text, SAR_TRANSPORT_TEXT))
		return SAR_ERR_IO;
	sar_status bad = worker_open(&ucx_carrier, about, worker, address, bytes, text);
	if (!bad)
		use(NULL, ((struct worker *)*worker)->loop);
	return bad;
}

static void ucx_close(void *worker)
{
	use(((struct worker *)worker)->loop, NULL);
	worker_close(worker);
}

struct listing {
	struct call call;
	char *text;
	size_t used;
	bool remote;
};

// list_name adds a transport with its device, such as tcp/eth0, to a list that has it not yet.
static void list_name(struct listing *list, const char *name)
{
	list->remote |= is_remote(name);
	list->text[list->used] = 0;
	if (strstr(list->text, name) || list->used + strlen(name) + 3 > SAR_TRANSPORT_TEXT)
		return;
	list->used += sprintf(list->text + list->used, "%s%s", list->used ? ", " : "", name);
}

// list_names reads what UCX says of a context, in lines such as "# resource 3 : md 1 dev 2 flags -- tcp/eth0",
// and of an endpoint, in lines such as "# lane[0]: 1:tcp/eth0.0 md[1] ...".
static void list_names(struct listing *list, char *said)
{
	char *rest = NULL;
	for (char *line = strtok_r(said, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		char *lane = strstr(line, "lane["), *name;
		if (lane && (name = strchr(lane, ' ')) && (name = strchr(name, ':'))) {
			name[strcspn(name, ". ")] = 0;
			list_name(list, name + 1);
		} else if (strstr(line, "resource") && (name = strrchr(line, ' ')) && strchr(name, '/')) {
			list_name(list, name + 1);
		}
	}
}

// run_list lists what endpoints use, or what they could where there are none.
static void run_list(struct loop *l, struct task *t)
{
	struct listing *list = (struct listing *)t;
	struct ucx *u = l->state;
	char *said = NULL;
	size_t bytes;
	FILE *f = open_memstream(&said, &bytes);
	if (f) {
		for (struct endpoint *e = u->endpoints; e; e = e->next)
			if (e->ep)
				ucp.ucp_ep_print_info(e->ep, f);
		if (!u->endpoints)
			ucp.ucp_context_print_info(u->context, f);
		fclose(f);
	}
	if (said)
		list_names(list, said);
	free(said);
	loop_called(&list->call);
}

static sar_status ucx_probe(void *user, int32_t *automatic, char *text)
{
	char unread[SAR_TRANSPORT_TEXT];
	struct listing list = {.call.task.run = run_list, .text = text ? text : unread};
	struct loop *l;
	(void)user;
	*automatic = 0;
	if (!text && !has_device())
		return SAR_OK; // it is not loaded for that
	pthread_mutex_lock(&in_use.lock);
	bool asked = in_use.loop;
	if (asked)
		loop_call(in_use.loop, &list.call);
	pthread_mutex_unlock(&in_use.lock);
	if (!asked) {
		if (library_open(&ucx_library, list.text, SAR_TRANSPORT_TEXT) || loop_open(&ucx_carrier.driver, ucx_carrier.start_ns, &l, list.text, SAR_TRANSPORT_TEXT))
			return SAR_ERR_IO;
		loop_call(l, &list.call);
		loop_close(l);
	}
	*automatic = list.remote;
	return SAR_OK;
}

const sar_transport *ucx_table(void)
{
	static const sar_transport table = {
		.size = sizeof table,
		.name = "ucx",
		.flags = SAR_TRANSPORT_REVOKES,
		.probe = ucx_probe,
		.open = ucx_open,
		.close = ucx_close,
		.register_memory = ucx_register,
		.unregister_memory = ucx_unregister,
		.connect = worker_connect,
		.send = worker_send,
		.receive = worker_receive,
		.disconnect = worker_disconnect,
	};
	return &table;
}
