/*
 * What a registry, its token server, a layout directory and a person say to den-fetch, given to every
 * parser there is. The first byte chooses what a document was announced as.
 */
#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base64.h"
#include "challenge.h"
#include "doc.h"
#include "mem.h"
#include "ref.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static bool is_digest(const struct digest *d)
{
	return strspn(d->hex, "0123456789abcdef") == 64 && strlen(d->hex) == 64;
}

static void fuzz_ref(const char *text)
{
	struct image_ref r, again;
	char version[136], whole[1024];
	struct den_err err = { 0 };
	struct digest d;
	struct platform p;

	if (digest_parse(text, &d, &err) == 0)
		check(is_digest(&d));
	if (platform_parse(text, &p, &err) == 0)
		check(p.os[0] && p.arch[0]);
	if (ref_parse(text, &r, &err) < 0) {
		check(err.code && err.msg[0]);
		return;
	}
	/* it goes into URLs and into an annotation */
	check(r.host[0] && !strpbrk(r.host, "/@?#% \\\r\n"));
	check(r.repo[0] && r.repo[0] != '/' && !strstr(r.repo, "..") && !strstr(r.repo, "//") &&
		!strpbrk(r.repo, "@?#:% \\\r\n"));
	check(!strpbrk(r.tag, "/@?#:% \\\r\n") && strcmp(r.tag, "..") &&
		(r.tag[0] || r.has_digest));
	check(!r.has_digest || is_digest(&r.digest));
	ref_version(&r, version);
	snprintf(whole, sizeof(whole), "%s/%s%s%s%s%s", r.host, r.repo, r.tag[0] ? ":" : "", r.tag,
		r.has_digest ? "@sha256:" : "", r.has_digest ? r.digest.hex : "");
	check(ref_parse(whole, &again, &err) == 0 && !memcmp(&r, &again, sizeof(r)));
}

static void fuzz_challenge(const char *text)
{
	struct challenge c = { 0 };

	challenge_add(&c, text);
	check(c.kind != CHALLENGE_BEARER || c.realm[0]);
	check(!strpbrk(c.realm, "\r\n") && !strpbrk(c.service, "\r\n") &&
		!strpbrk(c.scope, "\r\n"));
	check(strlen(c.realm) < sizeof(c.realm) && strlen(c.scope) < sizeof(c.scope));
}

static void fuzz_base64(const char *text, size_t n)
{
	auto_buf packed = { 0 }, plain = { 0 };

	base64_put(&packed, text, n);
	check(base64_get(buf_str(&packed), &plain) == 0 && plain.len == n &&
		!memcmp(buf_str(&plain), text, n));
	plain.len = 0;
	(void)base64_get(text, &plain);
}

/* Bytes that no JSON has stand for what a fuzzer would never guess. */
static void mend(struct buf *out, const char *text, size_t n)
{
#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	static const char *const words[] = { NULL, "\"sha256:" HEX "\"",
		"{\"digest\":\"sha256:" HEX
		"\",\"size\":5,\"mediaType\":\"application/vnd.oci.image.layer.v1.tar\"}",
		"{\"digest\":\"sha256:" HEX
		"\",\"size\":5,\"mediaType\":\"application/vnd.oci.image.config.v1+json\"}",
		"{\"schemaVersion\":2,\"config\":", ",\"layers\":[",
		"{\"schemaVersion\":2,\"manifests\":[",
		"\"platform\":{\"os\":\"linux\",\"architecture\":", "\"mediaType\":\"" };

	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)text[i];

		if (c > 0 && c < ARRAY_SIZE(words))
			buf_addstr(out, words[c]);
		else
			buf_add(out, text + i, 1);
	}
}

static void fuzz_doc(const char *text, size_t n, const char *said)
{
	static const struct platform wanted = { .os = "linux", .arch = "amd64" };
	const struct index_entry *chosen;
	struct den_err err = { 0 };
	struct doc d;

	if (doc_parse(text, n, said, &d, &err) < 0) {
		check(err.code && err.msg[0]);
		return;
	}
	check(d.media && n <= DOC_MAX);
	for (size_t i = 0; i < d.n_layers; i++)
		check(is_digest(&d.layers[i].digest) && d.layers[i].size <= DOC_BLOB_MAX);
	for (size_t i = 0; i < d.n_entries; i++)
		check(is_digest(&d.entries[i].d.digest));
	if (d.is_index && index_choose(&d, &wanted, &chosen, &err) == 0)
		check(chosen >= d.entries && chosen < d.entries + d.n_entries);
	check(d.is_index || is_digest(&d.config.digest));
	doc_free(&d);
}

static void fuzz_logins(const char *text, size_t n)
{
	struct den_err err;
	struct login l;
	struct platform p;
	char *token, refusal[120];
	bool helper;

	if (token_parse(text, n, &token, &err) == 0) {
		for (const char *s = token; *s; s++)
			check(isgraph((unsigned char)*s));
		free(token);
	}
	refusal_parse(text, n, refusal);
	check(strlen(refusal) < sizeof(refusal));
	if (auth_file_parse(text, n, "registry.example", "team/tool", &l, &helper, &err) == 0)
		login_free(&l);
	(void)config_platform(text, n, &p, &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const said[] = { NULL, "application/json", MEDIA_OCI_MANIFEST,
		MEDIA_OCI_INDEX, MEDIA_DOCKER_MANIFEST, MEDIA_DOCKER_LIST };
	auto_free char *text = mem_alloc(size + 1);
	auto_buf mended = { 0 };

	if (!size)
		return 0;
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	fuzz_ref(text);
	fuzz_challenge(text);
	fuzz_base64(text, size - 1);
	fuzz_doc(text, size - 1, said[data[0] % ARRAY_SIZE(said)]);
	mend(&mended, text, size - 1);
	fuzz_doc(buf_str(&mended), mended.len, said[data[0] % ARRAY_SIZE(said)]);
	fuzz_logins(text, size - 1);
	return 0;
}
