/*
 * WebSocket, as far as the canary needs it: what a box sends is masked with four bytes of its choice (RFC
 * 6455, 5.3), so the payload is unmasked to be looked at. The bytes themselves pass as they are; if they are
 * no WebSocket, what is looked at here is noise, and the bytes are looked at as they are anyway.
 */
#include <string.h>

#include "exchange_parts.h"
#include "mem.h"

static size_t head_len(const uint8_t *h)
{
	unsigned len = h[1] & 127;

	return 2U + (len == 126 ? 2 : len == 127 ? 8 : 0) + (h[1] & 128 ? 4 : 0);
}

static void frame_begin(struct ws_scan *w)
{
	unsigned more = (w->head[1] & 127) == 126 ? 2 : (w->head[1] & 127) == 127 ? 8 : 0;

	w->left = more ? 0 : w->head[1] & 127;
	for (unsigned i = 0; i < more; i++)
		w->left = w->left << 8 | w->head[2 + i];
	memset(w->key, 0, sizeof(w->key));
	if (w->head[1] & 128)
		memcpy(w->key, w->head + 2 + more, sizeof(w->key));
	w->at = w->have = 0;
}

int ws_look(const struct canary *c, struct ws_scan *w, const char *p, size_t n)
{
	char clear[1024];

	while (n) {
		size_t k = 0;
		int found;

		if (!w->left) {
			w->head[w->have++] = (uint8_t)*p++;
			n--;
			if (w->have >= 2 && w->have == head_len(w->head))
				frame_begin(w);
			continue;
		}
		for (; k < n && k < sizeof(clear) && k < w->left; k++)
			clear[k] = (char)(p[k] ^ (char)w->key[w->at++ & 3]);
		found = canary_feed(
			c, &w->scan, clear, k); /* on over frames: a message may have many */
		if (found >= 0)
			return found;
		w->left -= k;
		p += k;
		n -= k;
	}
	return -1;
}
