/* The end of a recording to a folder whose stallscope has ended.
 *
 * Who uses the folder holds a shared lock on a file in it, which the kernel releases when that process ends in any way. Where
 * nobody holds it any more, a thread of the library ends the recording, and removes what the process has in the folder; the
 * last process removes the folder. Folders without that file were made for programs that are started elsewhere: they stay.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "abandoned.h"
#include "control.h"
#include "map.h"
#include "state.h"
#include "threads.h"

/* Period (s) of the checks whether a stallscope uses the folder. */
enum { LOOK_S = 1 };
/* Results of open_lock in place of a descriptor. GONE: there is no lock file. HELD: the lock file cannot be opened, so
 * that somebody may hold the lock. NONE: there is no folder. */
enum { GONE = -3, HELD = -2, NONE = -1 };

static struct stat first_root;

/* The file with the lock, open, in the open folder; NONE without a folder, GONE without the file. */
static int open_lock(int folder)
{
    struct stat status;
    int lock = folder < 0 ? NONE : openat(folder, SS_LOCK_FILE, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (folder >= 0 && lock < 0)
        return errno == ENOENT ? GONE : HELD;
    if (lock < 0 || (!ss_file_status(lock, &status) && S_ISREG(status.st_mode)))
        return lock;
    close(lock);
    return HELD;
}

/* Whether the folder of the settings has a lock. */
int ss_may_be_abandoned(void)
{
    int folder = ss_settings.folder[0] ? ss_own_folder() : -1;
    int lock = open_lock(folder);
    if (folder >= 0)
        close(folder);
    if (lock >= 0)
        close(lock);
    return lock >= 0;
}

/* Removes the lock's file and the folder, if there is nothing else in it. */
static void remove_empty(int folder)
{
    struct ss_listing names = {.descriptor = folder};
    for (const char *name; (name = ss_next_name(&names));)
        if (strcmp(name, ".") && strcmp(name, "..") && strcmp(name, SS_LOCK_FILE))
            return;
    if (!unlinkat(folder, SS_LOCK_FILE, 0))
        rmdir(ss_settings.folder);
}

/* Identity of the root of the file system: where it is another one, the folder's path leads elsewhere. */
static struct stat root_status(void)
{
    struct stat status = {0};
    int root = open("/", O_PATH | O_CLOEXEC);
    if (root >= 0 && ss_file_status(root, &status))
        status = (struct stat){0};
    if (root >= 0)
        close(root);
    return status;
}

/* Whether the folder was removed. */
static int is_removed(void)
{
    struct stat now = root_status();
    return now.st_dev == first_root.st_dev && now.st_ino == first_root.st_ino && access(ss_settings.folder, F_OK) &&
           errno == ENOENT;
}

/* Ends the recording if nobody has the folder; 0 if somebody does. */
static int end_abandoned(void)
{
    int folder = ss_own_folder(), lock = open_lock(folder);
    int is_abandoned = lock == GONE || (folder < 0 && is_removed()) ||
                       (lock >= 0 && !flock(lock, LOCK_EX | LOCK_NB));
    if (is_abandoned) {
        ss_end_at_last();
        /* The lock is held until then: no other stallscope begins to use the folder. */
        if (folder >= 0 && ss_load_acquire(ss_private->recording) == SS_OFF) {
            ss_remove_file(folder);
            if (lock >= 0)
                remove_empty(folder);
        }
    }
    if (lock >= 0)
        close(lock);
    if (folder >= 0)
        close(folder);
    return is_abandoned;
}

static void *looking_thread(void *unused)
{
    prctl(PR_SET_NAME, "stallscope-wait");
    do
        nanosleep(&(struct timespec){.tv_sec = LOOK_S}, NULL);
    while (!ss_is_exiting() && ss_load_acquire(ss_private->recording) == SS_OPEN && !end_abandoned());
    return unused;
}

/* Looks about once a second whether a stallscope uses the folder, which has a lock. */
void ss_look_for_users(void)
{
    first_root = root_status();
    ss_start_thread(looking_thread, SS_CUPTI_STACK);
}
