#pragma once

#include "handlers.h"

json_t *v1_entry_json(const struct den_entry *e);
