/* The options that several verbs share. Those of one verb alone stand beside it. */
#include "options.h"

#define FIELD(name) offsetof(struct args, name)

const struct option_def options_global[] = {
	{ "state", 0, OPT_TEXT, FIELD(state), "DIR",
		"keep boxes in DIR (default: $DEN_STATE, else the usual place)" },
	{ "json", 0, OPT_FLAG, FIELD(json), NULL, "print data and errors as JSON" },
	{ "quiet", 'q', OPT_FLAG, FIELD(quiet), NULL, "print only what was asked for, no notes" },
	{ "no-color", 0, OPT_FLAG, FIELD(no_color), NULL, "no colours, even on a terminal" },
	{ "help", 'h', OPT_FLAG, FIELD(help), NULL, "explain, with examples" },
	{ "version", 0, OPT_FLAG, FIELD(version), NULL, "print the version" },
	{ 0 },
};

const struct option_def options_box[] = {
	{ "name", 'n', OPT_TEXT, FIELD(name), "NAME", "name the box: a-z 0-9 . _ -" },
	{ "template", 0, OPT_TEXT, FIELD(template_name), "NAME",
		"what it starts from (default: host)" },
	{ "mount", 'm', OPT_LIST, FIELD(mounts), "HOST:BOX[:ro]",
		"show a host file or directory in the box; may be repeated" },
	{ "hostname", 0, OPT_TEXT, FIELD(hostname), "NAME",
		"host name inside (default: the box's name)" },
	{ "srt-settings", 0, OPT_TEXT, FIELD(srt_settings), "FILE",
		"network and shared directories as sandbox-runtime's settings say" },
	{ "wall", 0, OPT_TEXT, FIELD(wall), "WALL", "how it is walled off: container (default), gvisor" },
	{ "cpus", 0, OPT_CPUS, FIELD(cpus), "N", "processors, like 2 or 0.5" },
	{ "memory", 0, OPT_SIZE, FIELD(memory), "SIZE", "memory of all its processes, like 512M" },
	{ "pids", 0, OPT_COUNT, FIELD(pids), "N", "processes and threads (default: 4096)" },
	{ "disk", 0, OPT_SIZE, FIELD(disk), "SIZE", "what it may write to disk, like 2G" },
	{ "nofile", 0, OPT_COUNT, FIELD(nofile), "N", "open files of one process" },
	{ "max-runtime", 0, OPT_DURATION, FIELD(max_runtime), "TIME",
		"stop the box that long after its start, like 1h" },
	{ "history", 0, OPT_TEXT, FIELD(history), "on|manual|off",
		"checkpoints after every change, when asked, or none (default: on, of a box that "
		"is deleted afterwards off)" },
	{ "reseed", 0, OPT_FLAG, FIELD(reseed), NULL,
		"restart generators of random numbers (OpenSSL, Python) in programs that are restored or forked" },
	{ 0 },
};

const struct option_def options_net[] = {
	{ "net", 0, OPT_TEXT, FIELD(net), "none|open",
		"no network, or all that is public (default: none, and what the options below allow)" },
	{ "allow", 0, OPT_LIST, FIELD(allow), "RULE",
		"NAME[:PORT], '*.NAME', CIDR:PORT[/udp] or host:PORT; may be repeated" },
	{ "deny", 0, OPT_LIST, FIELD(deny), "RULE",
		"the same, and stronger than every allow; may be repeated" },
	{ "preset", 0, OPT_LIST, FIELD(presets), "registries|git|llm|open",
		"rules that many need; 'den policy show NAME' prints them; may be repeated" },
	{ "policy", 0, OPT_TEXT, FIELD(policy), "FILE|NAME",
		"policy from a file (with / or .json in its name, or -), or one that 'den policy save' keeps" },
	{ "net-rate", 0, OPT_SIZE, FIELD(net_rate), "SIZE", "bytes a second, like 10M" },
	{ "net-bytes", 0, OPT_SIZE, FIELD(net_bytes), "SIZE", "bytes in all, like 1G" },
	{ "net-conns", 0, OPT_COUNT, FIELD(net_conns), "N", "connections at once" },
	{ "secret", 0, OPT_LIST, FIELD(secrets), "NAME@HOST[:PORT]:WHERE",
		"put a secret into requests to HOST: header=NAME, bearer, basic, query[=NAME], body or "
		"sigv4=KEYID; with ,env=VAR; may be repeated" },
	{ "audience", 0, OPT_LIST, FIELD(audiences), "URL",
		"for whom the box may get tokens; may be repeated" },
	{ "trust", 0, OPT_LIST, FIELD(trust), "FILE",
		"certificates (PEM) that the box and its gate trust besides the host's; may be repeated" },
	{ "proxy-env", 0, OPT_FLAG, FIELD(proxy_env), NULL,
		"set http_proxy and its like, for programs that insist" },
	{ 0 },
};

const struct option_def options_lease[] = {
	{ "ttl", 0, OPT_TEXT, FIELD(ttl), "TIME", "how long from now it may run, like 1h, or never (default: never)" },
	{ "on-expire", 0, OPT_TEXT, FIELD(on_expire), "delete|pause|pause-disk|stop", "what happens then (default: delete)" },
	{ "idle", 0, OPT_TEXT, FIELD(idle), "TIME", "how long it may run unused, like 10m, or never (default: never)" },
	{ "on-idle", 0, OPT_TEXT, FIELD(on_idle), "pause|pause-disk|stop|delete", "what happens then (default: pause)" },
	{ "idle-pause", 0, OPT_TEXT, FIELD(idle_pause), "TIME",
		"the same as --idle TIME --on-idle pause-disk: nothing of it stays in memory, any use brings it back",
		"idle on-idle" },
	{ 0 },
};

const struct option_def options_label[] = {
	{ "label", 0, OPT_LIST, FIELD(labels), "K=V", "a note to find it by; may be repeated" },
	{ 0 },
};

const struct option_def options_env[] = {
	{ "env", 'e', OPT_LIST, FIELD(env), "K[=V]",
		"set a variable; without =V, pass den's own; may be repeated" },
	{ "env-file", 0, OPT_LIST, FIELD(env_files), "FILE",
		"set the variables in FILE, one K=V a line" },
	{ "user", 'u', OPT_TEXT, FIELD(user), "USER", "name, or uid[:gid] (default: root)" },
	{ "workdir", 'w', OPT_TEXT, FIELD(workdir), "DIR",
		"working directory (default: the user's home)" },
	{ 0 },
};

const struct option_def options_exec[] = {
	{ "tty", 't', OPT_FLAG, FIELD(tty), NULL, "give it a terminal (default: when den has one)",
		"no-tty" },
	{ "no-tty", 'T', OPT_FLAG, FIELD(no_tty), NULL, "plain streams, even on a terminal" },
	{ "no-stdin", 0, OPT_FLAG, FIELD(no_stdin), NULL, "it reads end of file" },
	{ "tag", 0, OPT_TEXT, FIELD(tag), "TAG", "name the program, for attach, kill and logs" },
	{ "timeout", 0, OPT_DURATION, FIELD(timeout), "TIME",
		"end it and all it started after TIME, like 30s" },
	{ "cpu-time", 0, OPT_DURATION, FIELD(cpu_time), "TIME",
		"the same for the CPU time that it uses" },
	{ "grace", 0, OPT_GRACE, FIELD(grace), "TIME", "time between TERM and KILL (default: 5s)" },
	{ "max-output", 0, OPT_SIZE, FIELD(max_output), "SIZE", "kill it when it printed more" },
	{ "keep", 0, OPT_SIZE, FIELD(keep), "SIZE",
		"keep that much of each stream for logs (default: 1M)" },
	{ 0 },
};
