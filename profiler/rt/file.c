/* Files of a trace: a folder with segments within the disk budget, and whole blocks in the
 * segments. writer.c encodes the blocks. The control thread calls all of this. */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_ROOM 32
/* Bytes of a segment before its first block, the header. */
#define SEGMENT_HEAD 16
/* An end has 41 bytes. */
#define END_ROOM 64

static struct stat first_root;
static bool first_root_is_known;
static char folder[LW_FOLDER_ROOM];
/* Descriptors of the folder and of the current segment, in the run-time's own table. The folder is
 * opened once: the program may change its working directory or its root, and other files may then
 * have the same path. */
static int folder_fd = -1, file = -1;
static bool failed;
static uint32_t segment, oldest;
static uint64_t segment_bytes, total_bytes;
/* Where the segment's last block begins that is larger than an end. */
static uint64_t last_block;

void lw_file_setup(void) { first_root_is_known = stat("/", &first_root) == 0; }

/* Whether the program has changed its root, for example into a jail. The folder's path then names
 * another place. */
static bool has_other_root(void) {
    struct stat now;
    return first_root_is_known && (stat("/", &now) != 0 || now.st_dev != first_root.st_dev || now.st_ino != first_root.st_ino);
}

const char *lw_writer_folder(void) { return folder; }
bool lw_file_is_open(void) { return file >= 0 && !failed; }
bool lw_file_has_failed(void) { return failed; }
uint32_t lw_file_segment(void) { return segment; }
bool lw_file_has_room(uint64_t length) { return segment_bytes + length <= lw_config.segment; }

void lw_file_close_segment(void) {
    if (file >= 0)
        close(file);
    file = -1;
}

void lw_file_close(void) {
    lw_file_close_segment();
    if (folder_fd >= 0)
        close(folder_fd);
    folder_fd = -1;
}

void lw_file_abandon(void) { file = folder_fd = -1; }

static void name_of(uint32_t number, char into[NAME_ROOM]) { snprintf(into, NAME_ROOM, "%08u.lwt", number); }

static bool delete_oldest(void) {
    if (oldest >= segment)
        return false;
    char name[NAME_ROOM];
    struct stat about;
    name_of(oldest++, name);
    if (fstatat(folder_fd, name, &about, AT_SYMLINK_NOFOLLOW) == 0)
        total_bytes -= (uint64_t)about.st_size < total_bytes ? (uint64_t)about.st_size : total_bytes;
    unlinkat(folder_fd, name, 0);
    return true;
}

/* Writes all bytes or none: after a failure, the file is truncated to its previous length. */
static bool write_whole(const uint8_t *bytes, size_t length) {
    size_t done = 0;
    while (done < length) {
        ssize_t n = write(file, bytes + done, length - done);
        if (n > 0) {
            done += (size_t)n;
        } else if (n < 0 && errno == EINTR) {
            continue;
        } else {
            /* The disk is full: delete the oldest segment of this trace, if there is an older
             * one. */
            if (n < 0 && errno == ENOSPC && delete_oldest())
                continue;
            int reason = errno;
            if (done > 0 && ftruncate(file, (off_t)segment_bytes) == 0)
                lseek(file, (off_t)segment_bytes, SEEK_SET);
            if (!failed)
                lw_say("writing %s failed: %s; recording ends", folder, strerror(reason));
            failed = true;
            return false;
        }
    }
    segment_bytes += length;
    total_bytes += length;
    return true;
}

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
    uint64_t begins = segment_bytes;
    bool is_written = write_whole(start, 16 + (size_t)length);
    if (is_written && length >= END_ROOM)
        last_block = begins;
    return is_written;
}

void lw_file_drop_last_block(void) {
    if (file >= 0 && last_block > SEGMENT_HEAD && ftruncate(file, (off_t)last_block) == 0) {
        total_bytes -= segment_bytes - last_block;
        segment_bytes = last_block;
        lseek(file, (off_t)segment_bytes, SEEK_SET);
    }
    last_block = 0;
}

/* Creates the segment's file. False with errno, in particular EEXIST if the file exists. */
static bool create_segment(void) {
    char name[NAME_ROOM];
    name_of(segment, name);
    file = openat(folder_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    return file >= 0;
}

bool lw_file_open_segment(void) {
    /* open_folder has already created the first one. */
    if (file < 0 && !create_segment())
        return false;
    uint8_t head[SEGMENT_HEAD] = {'L', 'E', 'E', 'W', 'T', 'R', 'C', '\n', 1};
    memcpy(head + 12, &segment, 4);
    segment_bytes = last_block = 0;
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

/* ---- the folder ------------------------------------------------------------------------------ */

/* Creates a folder and its parents, as `mkdir -p` does. */
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

static void look_for_segment(const char *name, void *found) {
    size_t length = strlen(name);
    if (length > 4 && strcmp(name + length - 4, ".lwt") == 0)
        *(bool *)found = true;
}

/* Whether the opened folder has any segment. The first segments of its recording may have been
 * deleted. */
static bool is_taken(void) {
    bool found = false;
    lw_list(folder_fd, look_for_segment, &found);
    return found;
}

/* Opens `folder`, created if necessary, and creates the first segment in it. False if it has a
 * recording (`*taken`), or with errno. */
static bool open_folder(bool *taken) {
    *taken = false;
    if (!make_folder(folder) || (folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        return false;
    /* Another process may create the first segment after this check. */
    if (!(*taken = is_taken()) && create_segment())
        return true;
    *taken = *taken || errno == EEXIST;
    int reason = errno;
    lw_file_close();
    errno = reason;
    return false;
}

/* Never writes into an existing recording: a further recording of the process gets a folder of its
 * own. */
bool lw_file_begin(bool child, char *error, size_t room) {
    if (!lw_config_folder(&lw_config, child, folder, sizeof folder)) {
        snprintf(error, room, "the path of its folder is too long, or the working directory is unknown");
        return false;
    }
    if (has_other_root()) {
        snprintf(error, room, "the program has another root directory by now, where %s is another folder", folder);
        return false;
    }
    failed = false;
    segment = oldest = 0;
    total_bytes = 0;
    size_t length = strlen(folder);
    bool taken;
    for (int n = 2; !open_folder(&taken); n++) {
        if (!taken || n == 10000) {
            snprintf(error, room, "%s can't be written: %s", folder, strerror(errno));
            return false;
        }
        snprintf(folder + length, sizeof folder - length, ".%d", n);
    }
    return true;
}
