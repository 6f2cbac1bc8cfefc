#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#include "buf.h"
#include "doc.h"
#include "mem.h"

int platform_parse(const char *text, struct platform *ret, struct den_err *err)
{
	struct platform p = { 0 };
	char *const part[] = { p.os, p.arch, p.variant };
	const char *s = text;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(part); i++) {
		size_t n = strcspn(s, "/");

		if (!n || n >= sizeof(p.os))
			break;
		for (size_t k = 0; k < n; k++) {
			if (!isalnum((unsigned char)s[k]) && !strchr("._-", s[k]))
				goto bad;
			part[i][k] = s[k];
		}
		s += n;
		if (!*s)
			break;
		s++;
	}
	if (*s || i < 1 || !p.arch[0] || (s > text && s[-1] == '/'))
		goto bad;
	*ret = p;
	return 0;
bad:
	return den_fail(
		err, DEN_INVALID, 0, "'%.60s' is not a platform; write it like linux/amd64", text);
}

void platform_host(struct platform *ret)
{
	/* the kernel's names and those that images use */
	static const struct {
		const char *machine, *arch, *variant;
	} names[] = { { "x86_64", "amd64", "" }, { "aarch64", "arm64", "" },
		{ "armv7l", "arm", "v7" }, { "armv6l", "arm", "v6" }, { "i686", "386", "" } };
	struct utsname u;

	uname(&u);
	*ret = (struct platform){ .os = "linux" };
	snprintf(ret->arch, sizeof(ret->arch), "%.31s", u.machine);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (strcmp(u.machine, names[i].machine))
			continue;
		snprintf(ret->arch, sizeof(ret->arch), "%s", names[i].arch);
		snprintf(ret->variant, sizeof(ret->variant), "%s", names[i].variant);
	}
}

void platform_text(const struct platform *p, char ret[static 100])
{
	snprintf(ret, 100, "%s/%s%s%s", p->os[0] ? p->os : "?", p->arch[0] ? p->arch : "?",
		p->variant[0] ? "/" : "", p->variant);
}

bool platform_fits(const struct platform *wanted, const struct platform *offered)
{
	/* an offer that says no variant, or a wish for none, fits any; arm64 has but v8 */
	return !strcmp(wanted->os, offered->os) && !strcmp(wanted->arch, offered->arch) &&
	       (!wanted->variant[0] || !offered->variant[0] ||
		       !strcmp(wanted->variant, offered->variant));
}

int index_choose(const struct doc *index, const struct platform *wanted,
	const struct index_entry **ret, struct den_err *err)
{
	const struct index_entry *found = NULL;
	char text[100];
	auto_buf list = { 0 };

	/* the first that fits, but one with the very variant goes before */
	for (size_t i = 0; i < index->n_entries; i++) {
		const struct index_entry *e = &index->entries[i];

		if (platform_fits(wanted, &e->platform) &&
			(!found || (strcmp(found->platform.variant, wanted->variant) &&
					   !strcmp(e->platform.variant, wanted->variant))))
			found = e;
		if (!strcmp(e->platform.os, "unknown") ||
			list.len > 120) /* attestations call themselves so */
			continue;
		platform_text(&e->platform, text);
		buf_addf(&list, "%s%s", list.len ? ", " : "", text);
	}
	if (!found && index->n_entries == 1 && !index->entries[0].platform.os[0])
		found = &index->entries[0]; /* says nothing: its configuration will */
	if (!found) {
		platform_text(wanted, text);
		return den_fail(err, DEN_NOT_FOUND, 0,
			"there is no image for %s; choose with --platform: %.150s", text,
			list.len ? buf_str(&list) : "there is none at all");
	}
	*ret = found;
	return 0;
}
