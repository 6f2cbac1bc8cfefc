/*
 * Completion for shells: den __complete WORD..., of which the last is being typed, prints one
 * candidate a line: text, a tab, what it is. A line ":file" asks the shell for file names.
 */
#pragma once

#include "options.h"

int complete(int argc, char **argv, const struct args *a);
