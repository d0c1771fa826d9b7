/* What file.c does for writer.c: segments of a trace, and whole blocks in them. */
#pragma once

#include "rt.h"

#pragma GCC visibility push(hidden)

/* Before the program may change its root directory. */
void lw_file_setup(void);
/* Makes the trace's folder, and the first segment's file; false with a message if it can't. */
bool lw_file_begin(bool child, char *error, size_t room);
/* The segment's file with its first bytes; false with errno. Never opens a file that is there already. */
bool lw_file_open_segment(void);
/* The next segment is to be opened: the oldest ones go, if they must. */
void lw_file_make_room(void);
/* Closes the segment, or all of the trace. */
void lw_file_close_segment(void);
void lw_file_close(void);
/* In a forked child, whose table of descriptors never had them. */
void lw_file_abandon(void);
/* Ends the recording for want of a segment. */
void lw_file_fail(void);

bool lw_file_is_open(void);
bool lw_file_has_failed(void);
bool lw_file_has_room(uint64_t length);
/* The number of the segment that is written. */
uint32_t lw_file_segment(void);
/* A block whose payload is behind 16 free bytes at `start`. */
bool lw_file_write_block(int kind, uint8_t *start, uint32_t length);

#pragma GCC visibility pop
