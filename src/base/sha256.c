#include "sha256.h"

#include <string.h>

#if defined(__x86_64__) && defined(__GLIBC__) && __has_include(<sys/platform/x86.h>)
#include <immintrin.h>
#include <sys/platform/x86.h>
#define HAVE_NI 1
#endif

static const uint32_t k256[64] __attribute__((aligned(16))) = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5,
	0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
	0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
	0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
	0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
	0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
	0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
	0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
	0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
	0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
	0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
	0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
	0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5,
	0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
	0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
	0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static inline uint32_t ror(uint32_t v, int n)
{
	return v >> n | v << (32 - n);
}

static inline uint32_t load_be(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* The names of the standard. One round; instead of moving eight variables along, the caller names
 * them in another order. */
#define ROUND(a, b, c, d, e, f, g, h, i)                                                           \
	do {                                                                                       \
		uint32_t t1 = (h) + (ror(e, 6) ^ ror(e, 11) ^ ror(e, 25)) +                        \
			((g) ^ ((e) & ((f) ^ (g)))) + k256[i] + w[(i) & 15];                       \
		(d) += t1;                                                                         \
		(h) = t1 + (ror(a, 2) ^ ror(a, 13) ^ ror(a, 22)) +                                 \
			(((a) & (b)) | ((c) & ((a) | (b))));                                       \
	} while (0)
#define ROUNDS8(i)                                                                                 \
	do {                                                                                       \
		ROUND(a, b, c, d, e, f, g, h, (i) + 0);                                            \
		ROUND(h, a, b, c, d, e, f, g, (i) + 1);                                            \
		ROUND(g, h, a, b, c, d, e, f, (i) + 2);                                            \
		ROUND(f, g, h, a, b, c, d, e, (i) + 3);                                            \
		ROUND(e, f, g, h, a, b, c, d, (i) + 4);                                            \
		ROUND(d, e, f, g, h, a, b, c, (i) + 5);                                            \
		ROUND(c, d, e, f, g, h, a, b, (i) + 6);                                            \
		ROUND(b, c, d, e, f, g, h, a, (i) + 7);                                            \
	} while (0)

/* Sixteen words of the schedule from the sixteen before. */
static inline void schedule(uint32_t w[static 16])
{
	for (int j = 0; j < 16; j++) {
		uint32_t v0 = w[(j + 1) & 15], v1 = w[(j + 14) & 15];

		w[j] += (ror(v0, 7) ^ ror(v0, 18) ^ v0 >> 3) + w[(j + 9) & 15] +
			(ror(v1, 17) ^ ror(v1, 19) ^ v1 >> 10);
	}
}

void sha256_blocks_portable(uint32_t s[static 8], const uint8_t *p, size_t n)
{
	for (; n; n--, p += 64) {
		uint32_t a = s[0], b = s[1], c = s[2], d = s[3];
		uint32_t e = s[4], f = s[5], g = s[6], h = s[7];
		uint32_t w[16];

		for (int i = 0; i < 16; i++)
			w[i] = load_be(p + (size_t)i * 4);
		for (int i = 0;; i += 16) {
			ROUNDS8(i);
			ROUNDS8(i + 8);
			if (i == 48)
				break;
			schedule(w);
		}
		s[0] += a, s[1] += b, s[2] += c, s[3] += d;
		s[4] += e, s[5] += f, s[6] += g, s[7] += h;
	}
}

#ifdef HAVE_NI
/* Four rounds with the words in m0, which then become the words sixteen later. */
#define QUAD(i, m0, m1, m2, m3)                                                                    \
	do {                                                                                       \
		__m128i wk = _mm_add_epi32(m0, _mm_load_si128((const __m128i *)(k256 + 4 * (i)))); \
		cdgh = _mm_sha256rnds2_epu32(cdgh, abef, wk);                                      \
		abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(wk, 0x0e));             \
		m0 = _mm_add_epi32(_mm_sha256msg1_epu32(m0, m1), _mm_alignr_epi8(m3, m2, 4));      \
		m0 = _mm_sha256msg2_epu32(m0, m3);                                                 \
	} while (0)

__attribute__((target("sha,sse4.1,ssse3"))) static void blocks_ni(
	uint32_t s[static 8], const uint8_t *p, size_t n)
{
	const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
	__m128i lo = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)s), 0xb1);
	__m128i hi = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(s + 4)), 0x1b);
	__m128i abef = _mm_alignr_epi8(lo, hi, 8), cdgh = _mm_blend_epi16(hi, lo, 0xf0);

	for (; n; n--, p += 64) {
		const __m128i *in = (const __m128i *)p, abef0 = abef, cdgh0 = cdgh;
		__m128i m0 = _mm_shuffle_epi8(_mm_loadu_si128(in), swap);
		__m128i m1 = _mm_shuffle_epi8(_mm_loadu_si128(in + 1), swap);
		__m128i m2 = _mm_shuffle_epi8(_mm_loadu_si128(in + 2), swap);
		__m128i m3 = _mm_shuffle_epi8(_mm_loadu_si128(in + 3), swap);

		/* The schedule runs sixteen words too far at the end, which costs less than
		 * asking. */
		for (int i = 0; i < 16; i += 4) {
			QUAD(i, m0, m1, m2, m3);
			QUAD(i + 1, m1, m2, m3, m0);
			QUAD(i + 2, m2, m3, m0, m1);
			QUAD(i + 3, m3, m0, m1, m2);
		}
		abef = _mm_add_epi32(abef, abef0);
		cdgh = _mm_add_epi32(cdgh, cdgh0);
	}
	lo = _mm_shuffle_epi32(abef, 0x1b);
	hi = _mm_shuffle_epi32(cdgh, 0xb1);
	_mm_storeu_si128((__m128i *)s, _mm_blend_epi16(lo, hi, 0xf0));
	_mm_storeu_si128((__m128i *)(s + 4), _mm_alignr_epi8(hi, lo, 8));
}
#endif

/* libc asked the processor when it started and remembers: the instruction itself is a trap of some
 * 30 us in a virtual machine, which every start of den would pay. */
static void blocks(uint32_t s[static 8], const uint8_t *p, size_t n)
{
#ifdef HAVE_NI
	if (CPU_FEATURE_ACTIVE(SHA) && CPU_FEATURE_ACTIVE(SSE4_1) && CPU_FEATURE_ACTIVE(SSSE3)) {
		blocks_ni(s, p, n);
		return;
	}
#endif
	sha256_blocks_portable(s, p, n);
}

void sha256_init(struct sha256 *s)
{
	*s = (struct sha256){ .h = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
				      0x9b05688c, 0x1f83d9ab, 0x5be0cd19 } };
}

void sha256_add(struct sha256 *s, const void *data, size_t n)
{
	const uint8_t *p = data;
	size_t have = s->len % 64;

	s->len += n;
	if (have && n >= 64 - have) {
		memcpy(s->block + have, p, 64 - have);
		blocks(s->h, s->block, 1);
		p += 64 - have;
		n -= 64 - have;
		have = 0;
	}
	if (!have && n >= 64) {
		blocks(s->h, p, n / 64);
		p += n / 64 * 64;
		n %= 64;
	}
	if (n)
		memcpy(s->block + have, p, n);
}

void sha256_end(struct sha256 *s, uint8_t ret[static 32])
{
	static const uint8_t pad[64] = { 0x80 };
	uint64_t bits = s->len * 8;
	uint8_t tail[8];

	for (int i = 0; i < 8; i++)
		tail[i] = (uint8_t)(bits >> (56 - 8 * i));
	/* up to eight bytes before a block's end */
	sha256_add(s, pad, 1 + (119 - s->len % 64) % 64);
	sha256_add(s, tail, sizeof(tail));
	for (int i = 0; i < 32; i++)
		ret[i] = (uint8_t)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}

void sha256_hex(struct sha256 *s, char ret[static 65])
{
	static const char digits[] = "0123456789abcdef";
	uint8_t sum[32];

	sha256_end(s, sum);
	for (int i = 0; i < 32; i++) {
		ret[2 * i] = digits[sum[i] >> 4];
		ret[2 * i + 1] = digits[sum[i] & 15];
	}
	ret[64] = '\0';
}
