/* Files of a trace: its folder, its segments, and the blocks in them. file.c implements it for
 * writer.c. */
#pragma once

#include "rt.h"

#pragma GCC visibility push(hidden)

/* Remembers the root directory. Call it before the program can change its root. */
void lw_file_setup(void);
/* Creates the trace's folder and the file of the first segment; false with a message if that
 * fails. */
bool lw_file_begin(bool child, char *error, size_t room);
/* Creates the segment's file and writes its head; false with errno. Never opens an existing
 * file. */
bool lw_file_open_segment(void);
/* Advances to the next segment. Deletes the oldest ones as long as the disk budget requires it. */
void lw_file_make_room(void);
/* Closes the segment, or the whole trace. */
void lw_file_close_segment(void);
void lw_file_close(void);
/* Forgets the files in a forked child, whose table of descriptors never had them. */
void lw_file_abandon(void);
/* Ends the recording because a segment could not be created. */
void lw_file_fail(void);

bool lw_file_is_open(void);
bool lw_file_has_failed(void);
bool lw_file_has_room(uint64_t length);
/* Number of the current segment. */
uint32_t lw_file_segment(void);
/* Writes one block. The payload begins 16 bytes behind `start`; the block's head goes into these 16
 * bytes. */
bool lw_file_write_block(int kind, uint8_t *start, uint32_t length);
/* Makes room for the end in a file that cannot grow: drops the last block that is larger, and what
 * follows it. Keeps the header. */
void lw_file_drop_last_block(void);

#pragma GCC visibility pop
