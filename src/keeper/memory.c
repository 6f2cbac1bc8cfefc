/* Programs on disk. */
#include "keeper.h"

int memory_possible(const struct keeper *k, struct den_err *err)
{
	return k->ops->memory(err);
}
