/* SHA-256: known answers, in pieces, with and without the processor's help. */
#include "mem.h"
#include "sha256.h"
#include "test.h"

static void hex_of(const void *p, size_t n, size_t step, char hex[static 65])
{
	struct sha256 s;

	sha256_init(&s);
	for (size_t at = 0; at < n; at += step)
		sha256_add(&s, (const char *)p + at, MIN(step, n - at));
	sha256_hex(&s, hex);
}

TEST(sha256_gives_the_answers_of_the_standard)
{
	static const struct {
		const char *text, *hex;
	} known[] = {
		{ "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
		{ "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
		{ "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
			"248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
		{ "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrs"
		  "mnopqrstnopqrstu",
			"cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1" },
	};
	auto_free char *million = mem_alloc(1000000);
	char hex[65];

	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		hex_of(known[i].text, strlen(known[i].text), 1000, hex);
		CHECK(!strcmp(hex, known[i].hex));
	}
	memset(million, 'a', 1000000);
	hex_of(million, 1000000, 1000000, hex);
	CHECK(!strcmp(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"));
}

TEST(sha256_does_not_care_how_the_bytes_come)
{
	uint8_t data[1000];
	char whole[65], parts[65];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 37 + i / 256);
	for (size_t n = 0; n < sizeof(data); n += 1 + n / 40) {
		hex_of(data, n, sizeof(data), whole);
		for (size_t step = 1; step < 140; step += 7) {
			hex_of(data, n, step, parts);
			CHECK(!strcmp(whole, parts));
		}
	}
}

TEST(sha256_is_the_same_with_and_without_the_processor_s_help)
{
	struct sha256 s;
	uint32_t h[8];
	uint8_t data[64 * 9];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 131 ^ i >> 3);
	for (size_t n = 0; n <= 9; n++) {
		sha256_init(&s);
		memcpy(h, s.h, sizeof(h));
		sha256_add(&s, data, n * 64);
		sha256_blocks_portable(h, data, n);
		CHECK(!memcmp(h, s.h, sizeof(h)));
	}
}
