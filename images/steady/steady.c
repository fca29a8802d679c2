/*
 * What a program that makes a filesystem takes from the machine that it runs on, always the same: the time, random
 * numbers, the order in which folders are read, the numbers and the change times of their files. Loaded into it with
 * LD_PRELOAD, so that equal files give an equal image, byte for byte. The tools' own options do not go as far.
 *
 * FSJOULE_STEADY_TIME is the time, in seconds of the epoch.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <ftw.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* ------------------------------------------------------------------------------------------------------------ time */

static time_t steady_time(void)
{
    const char *set = getenv("FSJOULE_STEADY_TIME");
    return set ? (time_t)strtoll(set, NULL, 10) : 0;
}

time_t time(time_t *into)
{
    if (into)
        *into = steady_time();
    return steady_time();
}

int gettimeofday(struct timeval *restrict into, void *restrict zone)
{
    (void)zone;
    into->tv_sec = steady_time();
    into->tv_usec = 0;
    return 0;
}

int clock_gettime(clockid_t clock, struct timespec *into)
{
    if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)
        return NEXT(clock_gettime)(clock, into);
    into->tv_sec = steady_time();
    into->tv_nsec = 0;
    return 0;
}

/* -------------------------------------------------------------------------------------------------- random numbers */

/* splitmix64 (Steele, Lea, Flood 2014) from a fixed start. */
static uint64_t next_number(void)
{
    static uint64_t state = 0x66736a6f756c65;
    uint64_t mixed = (state += 0x9e3779b97f4a7c15);
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    return mixed ^ (mixed >> 31);
}

static void fill(unsigned char *into, size_t size)
{
    for (size_t at = 0; at < size; at++)
        into[at] = (unsigned char)next_number();
}

ssize_t getrandom(void *into, size_t size, unsigned flags)
{
    (void)flags;
    fill(into, size);
    return (ssize_t)size;
}

long jrand48(unsigned short seed[3])
{
    (void)seed;
    return (int32_t)next_number();
}

void uuid_generate(unsigned char *into)
{
    fill(into, 16);
    into[6] = (unsigned char)((into[6] & 0x0f) | 0x40); /* RFC 9562, version 4 */
    into[8] = (unsigned char)((into[8] & 0x3f) | 0x80);
}

void uuid_generate_random(unsigned char *into)
{
    uuid_generate(into);
}

void uuid_generate_time(unsigned char *into)
{
    uuid_generate(into);
}

/* ----------------------------------------------------------------------------------------------------------- files */

/* A file's number: how many others were seen before it. */
static ino_t numbered(dev_t device, ino_t inode)
{
    static struct seen {
        dev_t device;
        ino_t inode;
    } *all;
    static size_t count, room;

    for (size_t at = 0; at < count; at++)
        if (all[at].inode == inode && all[at].device == device)
            return (ino_t)(at + 1);
    if (count == room) {
        room = room ? 2 * room : 1024;
        all = realloc(all, room * sizeof *all);
        if (!all)
            abort();
    }
    all[count++] = (struct seen){device, inode};
    return (ino_t)count;
}

static int steadied(int result, struct stat *found)
{
    if (result == 0 && !S_ISBLK(found->st_mode)) {
        found->st_ino = numbered(found->st_dev, found->st_ino);
        found->st_atim = found->st_ctim = found->st_mtim;
    }
    return result;
}

int stat(const char *restrict path, struct stat *restrict found)
{
    return steadied(NEXT(stat)(path, found), found);
}

int lstat(const char *restrict path, struct stat *restrict found)
{
    return steadied(NEXT(lstat)(path, found), found);
}

int fstat(int file, struct stat *found)
{
    return steadied(NEXT(fstat)(file, found), found);
}

/* The same where long is 64 bits wide, by their other names. */
_Static_assert(sizeof(struct stat) == sizeof(struct stat64), "another layout");

int stat64(const char *restrict path, struct stat64 *restrict found)
{
    return stat(path, (struct stat *)found);
}

int lstat64(const char *restrict path, struct stat64 *restrict found)
{
    return lstat(path, (struct stat *)found);
}

int fstat64(int file, struct stat64 *found)
{
    return fstat(file, (struct stat *)found);
}

static int by_name(const struct dirent **one, const struct dirent **other)
{
    return strcmp((*one)->d_name, (*other)->d_name);
}

int scandir(const char *restrict folder, struct dirent ***restrict names, int (*wanted)(const struct dirent *),
            int (*order)(const struct dirent **, const struct dirent **))
{
    (void)order;
    return NEXT(scandir)(folder, names, wanted, by_name);
}

int scandir64(const char *restrict folder, struct dirent64 ***restrict names, int (*wanted)(const struct dirent64 *),
              int (*order)(const struct dirent64 **, const struct dirent64 **))
{
    (void)order;
    return scandir(folder, (struct dirent ***)names, (int (*)(const struct dirent *))wanted, by_name);
}
