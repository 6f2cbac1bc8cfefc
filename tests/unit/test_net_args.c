#include "test.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "box_args.h"
#include "buf.h"
#include "cli.h"
#include "fd.h"
#include "mem.h"
#include "net_args.h"
#include "policy.h"
#include "srt.h"
#include "strv.h"
#include "verbs.h"

/* Parses a command line of `den create` and makes its policy. */
static int make(struct net_args *n, struct den_err *err, const char *base, char **argv)
{
	struct args a;
	int r;

	args_init(&a);
	*n = (struct net_args){ 0 };
	*err = (struct den_err){ 0 };
	r = verb_parse(&verb_create, (int)strv_len(argv), argv, &a, err);
	if (r == 0)
		r = net_args_make(&a, base, n, err);
	args_free(&a);
	return r;
}

static bool gives(const char *json, const char *base, char **argv)
{
	auto_net_args n = { 0 };
	struct den_err err;

	if (make(&n, &err, base, argv) < 0) {
		printf("%s\n", err.msg);
		return false;
	}
	if (strcmp(n.policy ? n.policy : "", json)) {
		printf("gives %s\n  not %s\n", n.policy ? n.policy : "", json);
		return false;
	}
	return true;
}
#define GIVES(json, ...) CHECK(gives(json, NULL, (char *[]){ __VA_ARGS__, NULL }))
#define REFUSED(why, ...)                                                                          \
	do {                                                                                       \
		auto_net_args n_ = { 0 };                                                          \
		struct den_err e_;                                                                 \
		CHECK(make(&n_, &e_, NULL, (char *[]){ __VA_ARGS__, NULL }) < 0);                  \
		if (!strstr(e_.msg, why))                                                          \
			test_fail(__FILE__, __LINE__, e_.msg);                                     \
		CHECK(!n_.policy && !n_.name);                                                     \
	} while (0)

TEST(net_args_without_options_ask_for_nothing)
{
	GIVES("", "--name", "x");
	GIVES("", "--net", "none");
	CHECK(gives("", "{\"version\":1,\"allow\":[\"a.b\"]}", (char *[]){ NULL }));
}

TEST(net_args_become_one_policy)
{
	GIVES("{\"version\":1,\"allow\":[\"x.org\",\"*.y.org:443\",\"host:8080\"],\"deny\":[\"bad."
	      "y.org\"]}",
		"--allow", "X.org.", "--allow", "*.y.org:443", "--deny=bad.y.org", "--allow",
		"host:8080", "--allow", "x.org");
	GIVES("{\"version\":1,\"presets\":[\"open\"]}", "--net", "open");
	GIVES("{\"version\":1,\"presets\":[\"open\",\"git\"]}", "--net=open", "--preset", "git",
		"--preset", "open");
	GIVES("{\"version\":1,\"limits\":{\"rate\":10485760,\"bytes\":1073741824,\"connections\":5}"
	      "}",
		"--net-rate", "10M", "--net-bytes=1G", "--net-conns", "5");
	GIVES("{\"version\":1,\"identity\":{\"audiences\":[\"https://"
	      "a\",\"b\"]},\"proxy_env\":true}",
		"--audience", "https://a", "--audience", "b", "--proxy-env", "--audience", "b");
}

TEST(net_args_add_to_what_is_there)
{
	const char *base = "{\"version\":1,\"allow\":[\"a.b\",\"c.d:22\"],\"deny\":[\"e.f\"],"
			   "\"limits\":{\"rate\":5}}";
	struct args a;
	struct den_err err = { 0 };
	auto_net_args n = { 0 };

	CHECK(gives("{\"version\":1,\"allow\":[\"a.b\",\"c.d:22\",\"x.y\"],\"deny\":[\"e.f\"],"
		    "\"limits\":{\"rate\":7}}",
		base, (char *[]){ "--allow", "x.y", "--allow", "a.b", "--net-rate", "7", NULL }));
	args_init(&a);
	strv_add(&a.drop, "A.b");
	strv_add(&a.drop, "e.f");
	strv_add(&a.allow, "g.h");
	CHECK(net_args_make(&a, base, &n, &err) == 0);
	CHECK(!strcmp(n.policy,
		"{\"version\":1,\"allow\":[\"c.d:22\",\"g.h\"],\"limits\":{\"rate\":5}}"));
	net_args_free(&n);
	a.clear = true;
	strv_free(a.drop);
	a.drop = NULL;
	CHECK(net_args_make(&a, base, &n, &err) == 0);
	CHECK(!strcmp(n.policy, "{\"version\":1,\"allow\":[\"g.h\"]}"));
	a.clear = false;
	strv_add(&a.drop, "c.d"); /* which is not c.d:22 */
	net_args_free(&n);
	CHECK(net_args_make(&a, base, &n, &err) < 0 && err.code == DEN_NOT_FOUND &&
		strstr(err.msg, "c.d"));
	args_free(&a);
}

TEST(net_args_secrets_are_written_short)
{
	GIVES("{\"version\":1,\"secrets\":[{\"name\":\"ANTHROPIC_API_KEY\",\"host\":\"api."
	      "anthropic.com\","
	      "\"port\":443,\"in\":[\"header:x-api-key\"],\"env\":\"ANTHROPIC_API_KEY\"}]}",
		"--secret", "ANTHROPIC_API_KEY@api.anthropic.com:header=x-api-key");
	GIVES("{\"version\":1,\"secrets\":[{\"name\":\"K\",\"host\":\"a.b\",\"port\":8443,"
	      "\"in\":[\"query:key\",\"bearer\",\"basic\",\"body\"],\"env\":\"V\"}]}",
		"--secret", "K@a.b:8443:bearer,basic,body,query=key,env=V");
	GIVES("{\"version\":1,\"secrets\":[{\"name\":\"K\",\"host\":\"a.b\",\"port\":443,\"in\":["
	      "\"query\"],"
	      "\"env\":\"K\"}]}",
		"--secret", "K@a.b:query");
	GIVES("{\"version\":1,\"secrets\":[{\"name\":\"AWS\",\"host\":\"*.amazonaws.com\",\"port\":"
	      "443,"
	      "\"in\":[\"sigv4\"],\"env\":\"AWS_SECRET_ACCESS_KEY\",\"access_key\":\"AKIA1\","
	      "\"region\":\"eu-west-1\",\"service\":\"s3\"}]}",
		"--secret", "AWS@*.amazonaws.com:sigv4=AKIA1/eu-west-1/s3");
	GIVES("{\"version\":1,\"secrets\":[{\"name\":\"AWS\",\"host\":\"s3.x.org\",\"port\":443,"
	      "\"in\":[\"sigv4\"],\"env\":\"AWS_SECRET_ACCESS_KEY\",\"access_key\":\"AKIA1\"}]}",
		"--secret", "AWS@s3.x.org:sigv4=AKIA1");
}

TEST(net_args_refuse_with_the_option_named)
{
	REFUSED("--allow: 'x.org:0': there is no port 0", "--allow", "x.org:0");
	REFUSED("--deny: ", "--deny", "*");
	REFUSED("a name is ASCII here; write the xn-- form", "--allow", "b\xc3\xbc.org");
	REFUSED("presets[0]: there is no preset 'registry'", "--preset", "registry");
	REFUSED("--net none and --allow contradict", "--net", "none", "--allow", "x.org");
	REFUSED("--net none and --policy contradict", "--net", "none", "--policy", "ci");
	REFUSED("--allow cannot change it", "--policy", "ci", "--allow", "x.org");
	REFUSED("--policy: policy file '/nonexistent", "--policy", "/nonexistent/p.json");
	REFUSED("takes away", "--secret", "K@a.b:bearer", "--deny", "*.b");
	REFUSED("--secret: 'K': write it like", "--secret", "K");
	REFUSED("write it like", "--secret", "K@a.b");
	REFUSED("write it like", "--secret", "@a.b:bearer");
	REFUSED("write it like", "--secret", "K@a.b:443");
	REFUSED("write it like", "--secret", "K@:bearer");
	REFUSED("--secret: 'K@a.b:0:bearer': port", "--secret", "K@a.b:0:bearer");
	REFUSED("did you mean 'header'?", "--secret", "K@a.b:headr=x");
	REFUSED("is no place; there are header=NAME", "--secret", "K@a.b:header");
	REFUSED("no place", "--secret", "K@a.b:bearer=x");
	REFUSED("no place", "--secret", "K@a.b:bearer,,basic");
	REFUSED("'in' is missing", "--secret", "K@a.b:env=X");
	REFUSED("sigv4 is written", "--secret", "K@a.b:sigv4=A/eu");
	REFUSED("sigv4 is written", "--secret", "K@a.b:sigv4=A/eu/s3/x");
	REFUSED("sigv4 is written", "--secret", "K@a.b:sigv4=");
	REFUSED("goes to one name", "--secret", "K@*.b:bearer");
	REFUSED("not UTF-8", "--audience", "\xff");
	REFUSED("not UTF-8", "--secret", "K@a.b:bearer,env=\xff");
	REFUSED("not UTF-8", "--preset", "\xff");
}

static const char *put(const char *name, const char *text)
{
	static char path[PATH_MAX];
	auto_fd fd = -1;

	snprintf(path, sizeof(path), "%s/%s", test_dir(), name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	CHECK(fd >= 0 && fd_write_all(fd, text, strlen(text), NULL) == 0);
	return path;
}

TEST(net_args_take_a_policy_from_a_file_or_by_name)
{
	auto_net_args n = { 0 };
	struct den_err err;
	const char *path = put("p.json", "{\"allow\": [\"a.b\"], \"presets\": [\"git\"]}");

	GIVES("{\"version\":1,\"presets\":[\"git\"],\"allow\":[\"a.b\",\"c.d\"]}", "--policy",
		(char *)path, "--allow", "c.d");
	CHECK(make(&n, &err, NULL, (char *[]){ "--policy", "ci", NULL }) == 0);
	CHECK(!n.policy && !strcmp(n.name, "ci"));
	path = put("bad", "{\"alow\": []}");
	REFUSED("did you mean 'allow'?", "--policy", (char *)path);
	CHECK(net_policy_is_file("./x") && net_policy_is_file("x.json") && net_policy_is_file("-"));
	CHECK(!net_policy_is_file("x") && !net_policy_is_file(".json"));
}

/* ---- sandbox-runtime ------------------------------------------------------------------------- */

static bool domain(const char *text, bool deny, const char *want)
{
	auto_free char *rule = NULL;
	struct den_err err = { 0 };
	bool ok = srt_domain(text, deny, &rule, &err) == 0 ? !strcmp(rule, want)
							   : strstr(err.msg, want) != NULL;

	if (!ok)
		printf("'%s': %s\n", text, rule ? rule : err.msg);
	return ok;
}

TEST(srt_domains_become_rules_or_errors_with_the_right_spelling)
{
	CHECK(domain("example.com", false, "example.com:*"));
	CHECK(domain("*.Example.com", false, "*.example.com:*"));
	CHECK(domain("example.com:8443", false, "example.com:8443"));
	CHECK(domain("example.com", true, "example.com"));
	CHECK(domain("*.example.com:22", true, "*.example.com:22"));
	CHECK(domain("192.0.2.1", false, "192.0.2.1:*"));
	CHECK(domain("*", false, "allowAllDomains"));
	CHECK(domain("*:443", false, "allowAllDomains"));
	CHECK(domain("*", true, "leave the * out"));
	CHECK(domain("*.com", false, "too broad; name the domains, like *.example.com"));
	CHECK(domain("*.com:443", true, "too broad"));
	CHECK(domain("*.com.", false, "too broad"));
	CHECK(domain("*.com.:443", false, "too broad"));
	CHECK(domain("localhost.:80", false, "--allow host:PORT"));
	CHECK(domain("https://example.com/x", false, "write 'example.com'"));
	CHECK(domain("http://example.com:8080", false, "write 'example.com:8080'"));
	CHECK(domain("example.com/path", false, "write 'example.com'"));
	CHECK(domain("localhost", false, "--allow host:PORT"));
	CHECK(domain("localhost:3000", false, "--allow host:PORT"));
	CHECK(domain("intranet", false, "--allow"));
	CHECK(domain("a.*.com", false, "only at the front"));
	CHECK(domain("*example.com", false, "only at the front"));
	CHECK(domain("*.*.com", false, "only at the front"));
	CHECK(domain(".example.com", false, "begins with no dot"));
	CHECK(domain("example.com:0", false, "no port 0"));
	CHECK(domain("example.com:http", false, "not a port"));
	CHECK(domain("example.com:443:raw", false, "not a domain"));
	CHECK(domain("[::1]:80", false, "not a domain"));
	CHECK(domain("::1", false, "not a domain"));
	CHECK(domain("", false, "not a domain"));
	CHECK(domain("b\xc3\xbc.com", false, "xn--"));
	CHECK(domain("a b.com", false, "no spaces"));
}

static bool srt_says(const char *json, const char *why)
{
	struct den_err err = { 0 };
	auto_srt s = { 0 };

	if (srt_parse(json, strlen(json), true, &s, &err) == 0) {
		printf("accepted: %s\n", json);
		return false;
	}
	if (!strstr(err.msg, why)) {
		printf("%s\n  says: %s\n", json, err.msg);
		return false;
	}
	return true;
}

TEST(srt_never_ignores_a_key_silently)
{
	static const char harmless[] =
		"{\"network\": {\"allowedDomains\": [], \"deniedDomains\": [], "
		"\"strictAllowlist\": true,"
		"\"allowAllDomains\": false, \"allowUnixSockets\": [], \"allowAllUnixSockets\": "
		"true,"
		"\"allowLocalBinding\": true, \"mitmProxy\": null}, \"filesystem\": {\"denyRead\": "
		"[],"
		"\"allowWrite\": [], \"denyWrite\": [], \"disabled\": false}, \"allowPty\": true,"
		"\"enableWeakerNestedSandbox\": false, \"ripgrep\": {\"command\": \"rg\"},"
		"\"ignoreViolations\": {\"*\": [\"/usr\"]}, \"mandatoryDenySearchDepth\": 4}";
	struct den_err err = { 0 };
	auto_srt s = { 0 };

	CHECK(srt_parse(harmless, strlen(harmless), true, &s, &err) == 0);
	CHECK(!s.open && !s.allow && !s.deny && !s.mounts && strv_len(s.notes) == 2);
	CHECK(srt_says("{\"network\": {\"allowedDomain\": []}}", "did you mean 'allowedDomains'?"));
	CHECK(srt_says("{\"netwrok\": {}}", "did you mean 'network'?"));
	CHECK(srt_says("{\"network\": []}", "network: must be an object"));
	CHECK(srt_says("{\"network\": {\"allowedDomains\": [\"a.b\", \"*.com\"]}}",
		"network: allowedDomains: [1]"));
	CHECK(srt_says("{\"network\": {\"allowedDomains\": \"a.b\"}}", "must be a list"));
	CHECK(srt_says("{\"network\": {\"allowedDomains\": [5]}}", "must be a text"));
	CHECK(srt_says("{\"network\": {\"allowUnixSockets\": [\"/x\"]}}", "--mount"));
	CHECK(srt_says("{\"network\": {\"httpProxyPort\": 8080}}", "httpProxyPort"));
	CHECK(srt_says("{\"network\": {\"socksProxyPort\": 8080}}", "socksProxyPort"));
	CHECK(srt_says("{\"network\": {\"mitmProxy\": {\"socketPath\": \"/x\"}}}", "mitmProxy"));
	CHECK(srt_says("{\"network\": {\"tlsTerminate\": {\"caCertPath\": \"x\"}}}", "--secret"));
	CHECK(srt_says("{\"network\": {\"allowLocalBinding\": \"yes\"}}", "true or false"));
	CHECK(srt_says("{\"credentials\": {\"files\": []}}", "den secret set"));
	CHECK(srt_says("{\"enableWeakerNestedSandbox\": true}", "no weaker mode"));
	CHECK(srt_says("{\"filesystem\": {\"disabled\": true}}", "filesystem: disabled"));
	CHECK(srt_says("{\"mandatoryDenySearchDepth\": 0}", "1 to 10"));
	CHECK(srt_says("{\"network\": {}, \"network\": {}}", "not JSON"));
	CHECK(srt_says("x", "not JSON"));
}

TEST(srt_network_becomes_the_policy)
{
	const char *path = put("srt.json",
		"{\"network\": {\"allowedDomains\": [\"github.com\", \"*.npmjs.example:443\"],"
		"\"deniedDomains\": [\"evil.example\"]}}");

	GIVES("{\"version\":1,\"allow\":[\"github.com:*\",\"*.npmjs.example:443\",\"x.org\"],"
	      "\"deny\":[\"evil.example\"]}",
		"--srt-settings", (char *)path, "--allow", "x.org");
	path = put("srt2.json", "{\"network\": {\"allowAllDomains\": true, \"deniedDomains\": "
				"[\"evil.example\"]}}");
	GIVES("{\"version\":1,\"presets\":[\"open\"],\"deny\":[\"evil.example\"]}",
		"--srt-settings", (char *)path);
	REFUSED("--srt-settings: '/nonexistent'", "--srt-settings", "/nonexistent");
}

static void tree(const char *const *paths)
{
	CHECK(chdir(test_dir()) == 0);
	for (; *paths; paths++) {
		size_t n = strlen(*paths);

		if ((*paths)[n - 1] == '/')
			CHECK(mkdir(*paths, 0755) == 0);
		else
			CHECK(close(open(*paths, O_CREAT | O_WRONLY | O_CLOEXEC, 0644)) == 0);
	}
}

static bool mounts(const char *json, const char *want)
{
	struct den_err err = { 0 };
	auto_srt s = { 0 };
	auto_buf got = { 0 };
	char cwd[PATH_MAX];

	CHECK(getcwd(cwd, sizeof(cwd)));
	if (srt_parse(json, strlen(json), true, &s, &err) < 0) {
		printf("%s\n", err.msg);
		return false;
	}
	/* only what lies below the present directory, without it, and whether read-only */
	for (char **m = s.mounts; m && *m; m++) {
		const char *box = strchr(*m, ':') + 1;

		CHECK(!strncmp(*m, cwd, strlen(cwd)) && !strncmp(box, cwd, strlen(cwd)));
		buf_addf(&got, "%s ", box + strlen(cwd));
	}
	if (strcmp(buf_str(&got), want))
		printf("%s\n  gives '%s'\n  not   '%s'\n", json, buf_str(&got), want);
	return !strcmp(buf_str(&got), want);
}

TEST(srt_files_become_shares)
{
	static const char *const files[] = { "p/", "p/src/", "p/.git/", "p/.git/hooks/",
		"p/.git/config", "p/.bashrc", "p/src/.vscode/", "p/.claude/", "p/.claude/agents/",
		"p/.env", "ref/", "p/a/", "p/a/b/", "p/a/b/c/", "p/a/b/.mcp.json",
		"p/a/b/c/.profile", "q/", NULL };

	tree(files);
	setenv("HOME", test_dir(), 1);
	CHECK(mounts("{\"filesystem\": {\"allowWrite\": [\"q\", \"/tmp\", \"/dev/null\"], "
		     "\"allowRead\": [\"./ref/\"],"
		     "\"denyRead\": [\"~/.ssh\", \"/\"], \"denyWrite\": [\"/etc\", \"ref\"]}}",
		"/q /ref:ro "));
	CHECK(mounts("{\"filesystem\": {\"allowWrite\": [\"p\"], \"denyWrite\": [\"p/.env\"]}}",
		"/p /p/a /p/a/b /p/src /p/.env:ro /p/.git /p/.bashrc:ro /p/.claude "
		"/p/.git/hooks:ro "
		"/p/.git/config:ro /p/src/.vscode:ro /p/a/b/.mcp.json:ro /p/.claude/agents:ro "));
	CHECK(mounts("{\"filesystem\": {\"allowWrite\": [\"~/p/src\", \"p/../q\"]}}",
		"/q /p/src /p/src/.vscode:ro "));
	CHECK(mounts("{\"filesystem\": {\"allowWrite\": [\"p/.git\"], \"allowGitConfig\": true}}",
		"/p/.git /p/.git/hooks:ro "));
	CHECK(mounts(
		"{\"filesystem\": {\"allowWrite\": [\"q\"], \"denyWrite\": [\"q\"]}}", "/q:ro "));
	CHECK(mounts(
		"{\"filesystem\": {\"allowWrite\": [\"p/a\"]}, \"mandatoryDenySearchDepth\": 1}",
		"/p/a "));
	CHECK(mounts("{\"filesystem\": {\"denyRead\": [\"~\"], \"allowRead\": [\"p/src\"]}}",
		"/p/src:ro "));
}

TEST(srt_files_that_cannot_be_kept_are_errors)
{
	static const char *const files[] = { "p/", "p/.env", NULL };
	struct den_err err = { 0 };
	auto_srt s = { 0 };
	const char *json = "{\"filesystem\": {\"allowWrite\": [\".\"], \"denyRead\": [\"later\"]}}";
	char cwd[PATH_MAX];

	tree(files);
	CHECK(srt_says("{\"filesystem\": {\"allowWrite\": [\"p\"], \"denyRead\": [\"p/.env\"]}}",
		"filesystem: denyRead: "));
	CHECK(srt_says("{\"filesystem\": {\"allowRead\": [\"p\"], \"denyRead\": [\"p\"]}}",
		"cannot be hidden"));
	CHECK(srt_says("{\"filesystem\": {\"allowWrite\": [\"nothing\"]}}", "allowWrite: "));
	CHECK(srt_says("{\"filesystem\": {\"allowWrite\": [\"p\"], \"denyWrite\": [\"p/later\"]}}",
		"make it first"));
	CHECK(srt_says("{\"filesystem\": {\"allowWrite\": [\"/\"]}}", "all of the host"));
	CHECK(srt_says("{\"filesystem\": {\"allowWrite\": [\"src/**\"]}}", "patterns do not work"));
	CHECK(srt_says("{\"filesystem\": {\"denyRead\": [\"*.pem\"]}}", "patterns do not work"));
	CHECK(srt_says("{\"filesystem\": {\"allowWrite\": [\"a:b\"]}}", "colon"));
	CHECK(symlink("/etc/profile", "p/.profile") == 0);
	CHECK(srt_says("{\"filesystem\": {\"allowWrite\": [\"p\"]}}", "is a link"));
	CHECK(unlink("p/.profile") == 0);
	CHECK(srt_parse(json, strlen(json), true, &s, &err) == 0);
	CHECK(strv_len(s.notes) == 1 && strstr(s.notes[0], "later"));
	CHECK(getcwd(cwd, sizeof(cwd)) && s.workdir && !strcmp(s.workdir, cwd));
}
