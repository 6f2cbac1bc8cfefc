#pragma once

#include <stdint.h>

#define NS_PER_MS 1000000LL
#define NS_PER_SEC 1000000000LL

int64_t clock_mono_ns(void);	/* never jumps; stands still while the machine sleeps */
int64_t clock_wall_ms(void);	/* Unix time in milliseconds */
