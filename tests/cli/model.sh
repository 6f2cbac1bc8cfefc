# Random operations against a model in memory: see tests/model/run. MODEL_SEED chooses others; make soak does.

model() {
	/usr/bin/python3 "$TESTS/model/run" --seed "${MODEL_SEED:-42}" "$@"
}

#@ root user range timeout=120 waits
test_history_is_what_the_model_says() {
	model --seconds 10
}

#@ root fresh timeout=120 waits
test_history_on_a_plain_pool_is_what_the_model_says() {
	model --seconds 10 --pool plain
}

#@ root user timeout=180 waits
test_history_survives_kills_and_nothing_is_between() {
	model --kill --ops 80
}

#@ root fresh timeout=180 waits
test_history_on_a_plain_pool_survives_kills() {
	model --kill --ops 80 --pool plain
}

needs_disks() {
	[ -e /dev/loop-control ] || skip "no loop devices"
	command -v mkfs.ext4 >/dev/null || skip "no mkfs.ext4"
}

#@ root fresh timeout=180 waits
test_a_full_pool_breaks_nothing() {
	needs_disks
	model --full --ops 24
}

#@ root fresh timeout=180 waits
test_a_full_disk_breaks_nothing_of_a_plain_pool() {
	needs_disks
	model --full --ops 24 --pool plain
}

#@ root fresh timeout=180 waits
test_a_full_disk_below_the_pool_breaks_nothing() {
	needs_disks
	model --full --host --ops 24
}

#@ root fresh timeout=120
test_a_full_disk_below_the_pool_is_told_in_time_and_rm_makes_room() {
	needs_disks
	truncate -s 1400M "$TMP/small.img"
	mkfs.ext4 -q -m 0 "$TMP/small.img"
	mkdir "$TMP/fs"
	try unshare -m --propagation private "$TESTS/programs/full_disk.sh" "$TMP/small.img" "$TMP/fs"
	want_rc 0
}

#@ root fresh timeout=240 waits
test_a_power_cut_loses_no_checkpoint() {
	needs_disks
	[ -c /dev/fuse ] || skip "no /dev/fuse for a disk that loses its power"
	model --power --ops 40
}

#@ root fresh timeout=240 waits
test_a_power_cut_loses_no_checkpoint_of_a_plain_pool() {
	needs_disks
	[ -c /dev/fuse ] || skip "no /dev/fuse for a disk that loses its power"
	model --power --ops 40 --pool plain
}
