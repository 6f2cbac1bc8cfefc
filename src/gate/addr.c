#include "addr.h"

#include <arpa/inet.h>
#include <string.h>

#include "mem.h"

struct net_addr net_addr_v4(const uint8_t b[static 4])
{
	struct net_addr a = { .family = 4 };

	memcpy(a.b, b, 4);
	return a;
}

struct net_addr net_addr_v6(const uint8_t b[static 16])
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	struct net_addr a = { .family = 6 };

	if (!memcmp(b, mapped, sizeof(mapped)))
		return net_addr_v4(b + 12);
	memcpy(a.b, b, 16);
	return a;
}

int net_addr_parse(const char *text, struct net_addr *ret)
{
	uint8_t b[16];

	/* inet_pton() is strict: four decimal parts without leading zeros, no zone */
	if (inet_pton(AF_INET, text, b) == 1)
		*ret = net_addr_v4(b);
	else if (inet_pton(AF_INET6, text, b) == 1)
		*ret = net_addr_v6(b);
	else
		return -1;
	return 0;
}

void net_addr_format(const struct net_addr *a, char out[static 46])
{
	if (!inet_ntop(a->family == 4 ? AF_INET : AF_INET6, a->b, out, 46))
		out[0] = '\0';
}

bool net_addr_equal(const struct net_addr *a, const struct net_addr *b)
{
	return a->family == b->family && !memcmp(a->b, b->b, a->family == 4 ? 4 : 16);
}

static unsigned width(const struct net_addr *a)
{
	return a->family == 4 ? 32 : 128;
}

/* Do the first bits agree? */
static bool prefix_equal(const uint8_t *a, const uint8_t *b, unsigned bits)
{
	unsigned whole = bits / 8, rest = bits % 8;

	return !memcmp(a, b, whole) && (!rest || (a[whole] ^ b[whole]) >> (8 - rest) == 0);
}

bool net_cidr_has(const struct net_cidr *c, const struct net_addr *a)
{
	return c->a.family == a->family && prefix_equal(c->a.b, a->b, c->bits);
}

bool net_cidr_covers(const struct net_cidr *a, const struct net_cidr *b)
{
	return a->bits <= b->bits && net_cidr_has(a, &b->a);
}

bool net_cidr_mask(struct net_cidr *c)
{
	bool any = false;

	for (unsigned i = c->bits; i < width(&c->a); i++) {
		uint8_t bit = (uint8_t)(0x80 >> i % 8);

		any |= c->a.b[i / 8] & bit;
		c->a.b[i / 8] &= (uint8_t)~bit;
	}
	return any;
}

/* Of several that fit, the first counts: exceptions stand above what they are in. IANA's registries of
 * special-purpose addresses, and the addresses where clouds hand out credentials. */
struct special {
	uint8_t b[16];
	uint8_t bits;
	const char *why; /* NULL: public after all */
};

/* Ranges for documentation are not here: nobody has them, and closed networks give them to what stands in
 * for the Internet. */
static const struct special special4[] = {
	{ { 168, 63, 129, 16 }, 32, "metadata" }, /* Azure's, in the midst of public ones */
	{ { 100, 100, 100, 200 }, 32, "metadata" }, /* Alibaba's */
	{ { 192, 0, 0, 192 }, 32, "metadata" }, /* Oracle's */
	{ { 169, 254, 169, 0 }, 24, "metadata" },
	{ { 169, 254, 170, 0 }, 24, "metadata" }, /* ECS and EKS */
	{ { 169, 254 }, 16, "link-local" },
	{ { 0, 0, 0, 0 }, 32, "unspecified" },
	{ { 0 }, 8, "reserved" },
	{ { 10 }, 8, "private" },
	{ { 100, 64 }, 10, "shared" },
	{ { 127 }, 8, "loopback" },
	{ { 172, 16 }, 12, "private" },
	{ { 192, 0, 0 }, 24, "reserved" },
	{ { 192, 88, 99 }, 24, "6to4" },
	{ { 192, 168 }, 16, "private" },
	{ { 198, 18 }, 15, "benchmark" },
	{ { 224 }, 4, "multicast" },
	{ { 255, 255, 255, 255 }, 32, "broadcast" },
	{ { 240 }, 4, "reserved" },
};

static const struct special special6[] = {
	{ { 0xfd, 0x00, 0x0e, 0xc2, [15] = 0 }, 32,
		"metadata" }, /* Amazon's fd00:ec2::254 and others */
	{ { 0xfd, 0x20, 0x00, 0xce, [15] = 0 }, 32, "metadata" }, /* Google's fd20:ce::254 */
	{ { [15] = 0 }, 128, "unspecified" }, { { [15] = 1 }, 128, "loopback" },
	{ { 0xfc }, 7, "private" }, { { 0xfe, 0x80 }, 10, "link-local" },
	{ { 0xfe, 0xc0 }, 10, "private" }, /* site-local, as it was called */
	{ { 0xff }, 8, "multicast" }, { { 0x20, 0x01, 0x00, 0x00 }, 32, "Teredo" },
	{ { 0x20, 0x01, 0x00, 0x02 }, 48, "benchmark" },
	{ { 0x20, 0x01 }, 23, "reserved" }, /* protocol assignments */
	{ { 0x20, 0x02 }, 16, "6to4" },
	{ { 0x20 }, 3, NULL }, { { 0 }, 0, "reserved" }, /* nothing else is given out */
};

static const char *look_up(const struct special *t, size_t n, const uint8_t *b)
{
	for (size_t i = 0; i < n; i++)
		if (prefix_equal(t[i].b, b, t[i].bits))
			return t[i].why;
	return NULL;
}

const char *net_addr_special(const struct net_addr *a)
{
	static const uint8_t nat64[12] = { 0, 0x64, 0xff, 0x9b };
	const char *why;

	if (a->family == 4)
		return look_up(special4, ARRAY_SIZE(special4), a->b);
	if (a->family != 6)
		return "reserved";
	if (!memcmp(a->b, nat64, sizeof(nat64)))
		return look_up(special4, ARRAY_SIZE(special4), a->b + 12);
	why = look_up(special6, ARRAY_SIZE(special6), a->b);
	/* ISATAP: a router there would pass it on to the IPv4 address */
	if (!why && (a->b[8] & 0xfd) == 0 && !a->b[9] && a->b[10] == 0x5e && a->b[11] == 0xfe)
		why = look_up(special4, ARRAY_SIZE(special4), a->b + 12);
	return why;
}

const char *net_cidr_special(const struct net_cidr *c)
{
	struct net_addr last = c->a;
	const char *why = net_addr_special(&c->a), *end;

	for (unsigned i = c->bits; i < width(&c->a); i++)
		last.b[i / 8] |= (uint8_t)(0x80 >> i % 8);
	return why && (end = net_addr_special(&last)) && !strcmp(end, why) ? why : NULL;
}
