/* The bundle that runsc is given: what OCI calls config.json, and the command line. */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "gvisor.h"
#include "json.h"
#include "mem.h"
#include "strv.h"

static const char *const cap_names[] = { [0] = "CHOWN", [1] = "DAC_OVERRIDE", [2] = "DAC_READ_SEARCH",
	[3] = "FOWNER", [4] = "FSETID", [5] = "KILL", [6] = "SETGID", [7] = "SETUID", [8] = "SETPCAP",
	[10] = "NET_BIND_SERVICE", [13] = "NET_RAW", [15] = "IPC_OWNER", [18] = "SYS_CHROOT", [21] = "SYS_ADMIN",
	[27] = "MKNOD", [28] = "LEASE", [29] = "AUDIT_WRITE", [31] = "SETFCAP" };

/* Those of a box on the other wall, over the sentry's kernel alone; and SYS_ADMIN, which init gives up when it
 * has put its mounts in order (init/guest.c). */
static void put_caps(struct json *j, const char *set)
{
	char name[32];

	json_open(j, set, '[');
	for (int i = 0; i < n_caps_kept; i++) {
		snprintf(name, sizeof(name), "CAP_%s", cap_names[caps_kept[i]]);
		json_str(j, NULL, name);
	}
	json_str(j, NULL, "CAP_SYS_ADMIN");
	json_close(j, ']');
}

static void put_process(struct launch *l, struct json *j)
{
	uint64_t pids = l->plan->spec->pids;
	char text[24];
	struct rlimit nofile;

	json_open(j, "process", '{');
	json_open(j, "user", '{');
	json_u64(j, "uid", 0);
	json_u64(j, "gid", 0);
	json_close(j, '}');
	json_open(j, "args", '[');
	json_str(j, NULL, "/dev/den-init");
	json_str(j, NULL, l->orphan_s);
	json_str(j, NULL, "0"); /* memory is told by the sentry */
	json_str(j, NULL, "guest");
	snprintf(text, sizeof(text), "%llu", (unsigned long long)(pids ? MIN(pids, GVISOR_PIDS) : GVISOR_PIDS));
	json_str(j, NULL, text);
	json_str(j, NULL, l->plan->boot_id);
	json_str(j, NULL, l->plan->ids == IDS_SINGLE ? "one" : "many");
	json_close(j, ']');
	json_open(j, "env", '[');
	json_close(j, ']');
	json_str(j, "cwd", "/");
	json_open(j, "capabilities", '{');
	put_caps(j, "bounding");
	put_caps(j, "effective");
	put_caps(j, "permitted");
	json_close(j, '}');
	if (getrlimit(RLIMIT_NOFILE, &nofile) == 0) {
		json_open(j, "rlimits", '[');
		json_open(j, NULL, '{');
		json_str(j, "type", "RLIMIT_NOFILE");
		json_u64(j, "soft", nofile.rlim_cur);
		json_u64(j, "hard", nofile.rlim_max);
		json_close(j, '}');
		json_close(j, ']');
	}
	json_close(j, '}');
}

/* options: comma-separated */
static void put_mount(struct json *j, const char *at, const char *type, const char *source, const char *options)
{
	json_open(j, NULL, '{');
	json_str(j, "destination", at);
	json_str(j, "type", type);
	json_str(j, "source", source);
	json_open(j, "options", '[');
	for (const char *p = options; *p;) {
		size_t n = strcspn(p, ",");

		json_bytes(j, NULL, p, n);
		p += n + (p[n] == ',');
	}
	json_close(j, ']');
	json_close(j, '}');
}

/* Sources are paths of the tree that stage.c makes. */
static void put_mounts(struct launch *l, struct json *j)
{
	json_open(j, "mounts", '[');
	put_mount(j, "/proc", "proc", "proc", "nosuid,nodev,noexec");
	put_mount(j, "/sys", "sysfs", "sysfs", "nosuid,nodev,noexec,ro");
	put_mount(j, "/dev/shm", "tmpfs", "tmpfs", "nosuid,nodev,mode=1777");
	put_mount(j, "/run", "tmpfs", "tmpfs", "nosuid,nodev,mode=0755");
	put_mount(j, "/dev/den-init", "bind", "/init", "ro,nosuid");
	if (l->run_fd >= 0 || (!l->root && l->plan->run_path))
		put_mount(j, "/run/den", "bind", "/run",
			l->plan->spec->flags & BOX_RESEED ? "ro,nosuid,nodev" : "ro,nosuid,nodev,noexec");
	for (size_t i = 0; i < l->plan->spec->n_mounts; i++) {
		const struct box_mount *m = &l->plan->spec->mounts[i];
		char source[16];

		snprintf(source, sizeof(source), "/m%zu", i);
		put_mount(j, m->box, "bind", source, m->ro ? "ro,nosuid,nodev" : "nosuid,nodev");
	}
	json_close(j, ']');
}

void gvisor_config(struct launch *l, struct buf *out)
{
	struct json j = { 0 };

	json_open(&j, NULL, '{');
	json_str(&j, "ociVersion", "1.0.0");
	put_process(l, &j);
	json_open(&j, "root", '{');
	json_str(&j, "path", "/r");
	json_close(&j, '}');
	json_str(&j, "hostname", l->hostname);
	put_mounts(l, &j);
	json_open(&j, "linux", '{');
	json_open(&j, "namespaces", '[');
	json_open(&j, NULL, '{');
	json_str(&j, "type", "pid");
	json_close(&j, '}');
	json_open(&j, NULL, '{');
	json_str(&j, "type", "mount");
	json_close(&j, '}');
	if (!l->plan->host_net) { /* else it would make one for itself, with nothing in it */
		json_open(&j, NULL, '{');
		json_str(&j, "type", "network");
		json_str(&j, "path", "/proc/self/ns/net");
		json_close(&j, '}');
	}
	json_close(&j, ']');
	if (l->plan->spec->memory) {
		json_open(&j, "resources", '{');
		json_open(&j, "memory", '{');
		json_u64(&j, "limit", l->plan->spec->memory);
		json_close(&j, '}');
		json_close(&j, '}');
	}
	json_close(&j, '}');
	json_close(&j, '}');
	*out = j.b;
}

void gvisor_argv(struct launch *l, char ***argv)
{
	const struct gvisor_launch *g = l->own;
	static const char *const all[] = { "runsc", "--root=/s", "--log=/log", "--platform=systrap",
		"--ignore-cgroups", /* it is in its group already, and could make none */
		"--overlay2=none",  /* the root is an overlay of ours: what is written has to reach it */
		"--host-uds=open",  /* /run/den/wake.sock */
		"--net-raw" };

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		strv_add(argv, all[i]);
	/* Its own, with one end of the link (link.c). What is connected to the other end is cut when it is saved. */
	strv_add(argv, l->plan->host_net ? "--network=host" : "--network=sandbox");
	strv_add(argv, "--net-disconnect-ok");
	if (g->images_fd >= 0) {
		strv_add(argv, "restore");
		strv_add(argv, "--image-path=/images");
	} else {
		strv_add(argv, "run");
		strv_add(argv, "--pass-fd=3:3");
	}
	strv_add(argv, "--detach");
	strv_add(argv, "--bundle=/b");
	strv_add(argv, "--pid-file=/s/pid");
	strv_add(argv, "box");
}
