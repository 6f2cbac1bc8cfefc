#include <string.h>

#include "mem.h"
#include "test.h"
#include "volume.h"

TEST(volume_name_is_one_step_below_its_folder)
{
	static const char *const bad[] = { "", "volume", "volume:", "volume:.", "volume:..", "volume:a/b", "volume:/etc",
		"volume:../x", "volume:A", "volume:-a", "volume:a b", "volume:a\n", "/volume:a", "Volume:a",
		"volume:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		CHECK(volume_name(bad[i]) == NULL);
	CHECK(strcmp(volume_name("volume:a"), "a") == 0);
	CHECK(strcmp(volume_name("volume:v0-9z"), "v0-9z") == 0);
}
