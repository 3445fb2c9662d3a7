// The table of UCX, and what it tells people of itself.
#define _GNU_SOURCE
#include "ucx.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool ucx_has_device(const char *folder)
{
	DIR *d = opendir(folder);
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

static sar_status ucx_open(void *user, const sar_transport_worker *about, void **worker, uint8_t *address,
	size_t *bytes, char *text)
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

// list_name adds a transport with its device, such as tcp/eth0, to a list that has it not yet.
static void list_name(char *list, const char *name)
{
	size_t used = strlen(list), n = strlen(name);
	for (const char *at = list; (at = strstr(at, name)); at += n)
		if ((at == list || at[-1] == ' ') && (!at[n] || at[n] == ','))
			return;
	if (used + n + 3 <= SAR_TRANSPORT_TEXT)
		sprintf(list + used, "%s%s", used && list[used - 1] != ' ' ? ", " : "", name);
}

bool ucx_list(char *list, char *said)
{
	bool remote = false;
	char *rest = NULL;
	for (char *line = strtok_r(said, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		char *name = strstr(line, "lane[");
		if (name && (name = strchr(name, ' ')) && (name = strchr(name, ':')))
			name[strcspn(name, ". ")] = 0;
		else if (!strstr(line, "resource") || !(name = strrchr(line, ' ')) || !strchr(name, '/'))
			continue;
		list_name(list, name + 1);
		remote |= is_remote(name + 1);
	}
	return remote;
}

struct listing {
	struct call call;
	char *list;
	bool remote;
};

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
		list->remote = ucx_list(list->list, said);
	free(said);
	loop_called(&list->call);
}

// introduce begins the list with the library's version and file.
static void introduce(char *list)
{
	unsigned major, minor, release;
	ucp.ucp_get_version(&major, &minor, &release);
	snprintf(list, SAR_TRANSPORT_TEXT, "UCX %u.%u.%u, %.256s: ", major, minor, release, library_path(&ucx_library));
}

static sar_status ucx_probe(void *user, int32_t *automatic, char *text)
{
	char unread[SAR_TRANSPORT_TEXT];
	struct listing list = {.call.task.run = run_list, .list = text ? text : unread};
	struct loop *l;
	(void)user;
	*automatic = 0;
	if (!text && !ucx_has_device("/sys/class/infiniband"))
		return SAR_OK; // it is not loaded for that
	if (library_open(&ucx_library, list.list, SAR_TRANSPORT_TEXT))
		return SAR_ERR_IO;
	introduce(list.list);
	pthread_mutex_lock(&in_use.lock);
	bool asked = in_use.loop;
	if (asked)
		loop_call(in_use.loop, &list.call);
	pthread_mutex_unlock(&in_use.lock);
	if (!asked) {
		if (loop_open(&ucx_carrier.driver, ucx_carrier.start_ns, &l, list.list, SAR_TRANSPORT_TEXT))
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
