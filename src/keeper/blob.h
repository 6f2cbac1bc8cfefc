/* den-init, carried inside den (src/init/meson.build makes these). */
#pragma once

extern const char den_init_blob[], den_init_blob_end[];
extern const char den_init_hash[];
