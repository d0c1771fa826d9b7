/* The trace's files: a folder, segments in it within the budget, and blocks in these, each whole or not at all. What the blocks say is writer.c's.
 * Only the control thread is here. */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[4200];
static int file = -1;
static bool failed;
static uint32_t segment, oldest;
static uint64_t segment_bytes, total_bytes;

const char *lw_writer_folder(void) { return folder; }
bool lw_file_is_open(void) { return file >= 0 && !failed; }
bool lw_file_has_failed(void) { return failed; }
uint32_t lw_file_segment(void) { return segment; }
bool lw_file_has_room(uint64_t length) { return segment_bytes + length <= lw_config.segment; }

void lw_file_close(void) {
    if (file >= 0)
        close(file);
    file = -1;
}

static void path_of(uint32_t number, char *into, size_t room) { snprintf(into, room, "%s/%08u.lwt", folder, number); }

static bool delete_oldest(void) {
    if (oldest >= segment)
        return false;
    char path[4300];
    struct stat about;
    path_of(oldest++, path, sizeof path);
    if (stat(path, &about) == 0)
        total_bytes -= (uint64_t)about.st_size < total_bytes ? (uint64_t)about.st_size : total_bytes;
    unlink(path);
    return true;
}

/* All of it or nothing: what was half written is cut off again. */
static bool write_whole(const uint8_t *bytes, size_t length) {
    size_t done = 0;
    while (done < length) {
        ssize_t n = write(file, bytes + done, length - done);
        if (n > 0) {
            done += (size_t)n;
        } else if (n < 0 && errno == EINTR) {
            continue;
        } else {
            /* A full disk: our own oldest segment makes room, if there is one. */
            if (n < 0 && errno == ENOSPC && delete_oldest())
                continue;
            int reason = errno;
            if (done > 0 && ftruncate(file, (off_t)segment_bytes) == 0)
                lseek(file, (off_t)segment_bytes, SEEK_SET);
            failed = true;
            lw_say("writing %s failed: %s; recording ends", folder, strerror(reason));
            return false;
        }
    }
    segment_bytes += length;
    total_bytes += length;
    return true;
}

/* A block whose payload is behind 16 free bytes at `start`. */
bool lw_file_write_block(int kind, uint8_t *start, uint32_t length) {
    static const uint8_t sync[4] = {0xA7, 0x4C, 0x57, 0x42};
    if (file < 0)
        return false;
    memcpy(start, sync, 4);
    start[4] = (uint8_t)kind;
    memset(start + 5, 0, 3);
    memcpy(start + 8, &length, 4);
    uint32_t crc = lw_crc32c(0, start + 4, 8);
    crc = lw_crc32c(crc, start + 16, length);
    memcpy(start + 12, &crc, 4);
    return write_whole(start, 16 + (size_t)length);
}

bool lw_file_open_segment(void) {
    char path[4300];
    path_of(segment, path, sizeof path);
    file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0)
        return false;
    uint8_t head[16] = {'L', 'E', 'E', 'W', 'T', 'R', 'C', '\n', 1};
    memcpy(head + 12, &segment, 4);
    segment_bytes = 0;
    return write_whole(head, sizeof head);
}

void lw_file_make_room(void) {
    segment++;
    while (total_bytes + lw_config.segment > lw_config.disk && delete_oldest())
        ;
}

void lw_file_fail(void) {
    failed = true;
    lw_say("no new segment in %s: %s; recording ends", folder, strerror(errno));
}

/* ---- the folder ------------------------------------------------------------------------------------------------------------ */

/* `mkdir -p`. */
static bool make_folder(char *path) {
    for (char *at = path + 1; *at; at++)
        if (*at == '/') {
            *at = '\0';
            int done = mkdir(path, 0777);
            *at = '/';
            if (done != 0 && errno != EEXIST && errno != EROFS && errno != EACCES)
                return false;
        }
    return mkdir(path, 0777) == 0 || errno == EEXIST;
}

/* A second recording of one process gets a folder of its own; what is there is somebody's. */
bool lw_file_begin(bool child, char *error, size_t room) {
    char first[4300];
    lw_config_folder(&lw_config, child, folder, sizeof folder);
    size_t length = strlen(folder);
    int n = 2;
    bool made;
    while ((made = make_folder(folder))) {
        path_of(0, first, sizeof first);
        if (n == 10000 || access(first, F_OK) != 0)
            break;
        snprintf(folder + length, sizeof folder - length, ".%d", n++);
    }
    if (!made) {
        snprintf(error, room, "%s can't be made: %s", folder, strerror(errno));
        return false;
    }
    failed = false;
    segment = oldest = 0;
    total_bytes = 0;
    return true;
}
