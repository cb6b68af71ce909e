/* A libamdhip64.so of our own, for a torch that stands for a ROCm build.

   FAKE_HIP_INIT=100             what hipInit returns; `hang` and `crash` never return
   FAKE_HIP_CONTEXT=999          what hipSetDevice returns; `hang`, `crash` likewise
   FAKE_HIP_CARDS=4              how many cards there are; their UUIDs are GPU-00000000000abc0N, in lower case
   FAKE_HIP_MUTE=1               the cards tell no UUID, as a virtual function may

   ROCR_VISIBLE_DEVICES names cards by UUIDs or numbers, in whatever case; HIP_VISIBLE_DEVICES, or else
   CUDA_VISIBLE_DEVICES, then numbers what that leaves. Both are read up to the first entry that is none. */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define MOST 64

static int answer(const char *variable)
{
    const char *value = getenv(variable);
    if (value == NULL)
        return 0;
    if (strcmp(value, "hang") == 0)
        for (;;)
            pause();
    if (strcmp(value, "crash") == 0)
        raise(SIGSEGV);
    return atoi(value);
}

static void uuid_of(int card, char *text)
{
    snprintf(text, 21, "GPU-%016x", 0xabc01 + card);
}

/* Reads a list of numbers, and of UUIDs where `named`; returns how many of `count` it leaves, and which. */
static int filtered(const char *list, int count, int named, int *left)
{
    int found = 0;
    while (list != NULL && *list != '\0' && found < MOST) {
        size_t length = strcspn(list, ",");
        int card = -1;
        char text[21];
        if (*list >= '0' && *list <= '9')
            card = atoi(list);
        for (int i = 0; named && i < count; i++) {
            uuid_of(i, text);
            if (length == 20 && strncasecmp(list, text, 20) == 0)
                card = i;
        }
        if (card < 0 || card >= count)
            break;
        left[found++] = card;
        list += length;
        list += *list == ',';
    }
    return found;
}

/* The cards that a program sees, in its order. */
static int visible(int *cards)
{
    const char *value = getenv("FAKE_HIP_CARDS");
    int left[MOST], count = value == NULL ? 1 : atoi(value);
    for (int i = 0; i < count; i++)
        left[i] = i;
    if ((value = getenv("ROCR_VISIBLE_DEVICES")) != NULL)
        count = filtered(value, count, 1, left);
    if ((value = getenv("HIP_VISIBLE_DEVICES")) == NULL)
        value = getenv("CUDA_VISIBLE_DEVICES");
    if (value == NULL) {
        memcpy(cards, left, sizeof left);
        return count;
    }
    int places[MOST];
    count = filtered(value, count, 0, places);
    for (int i = 0; i < count; i++)
        cards[i] = left[places[i]];
    return count;
}

int hipInit(unsigned flags)
{
    int cards[MOST];
    (void)flags;
    int code = answer("FAKE_HIP_INIT");
    return code != 0 ? code : visible(cards) == 0 ? 100 : 0;
}

const char *hipGetErrorName(int code)
{
    return code == 0 ? "hipSuccess" : code == 100 ? "hipErrorNoDevice" : "hipErrorUnknown";
}

const char *hipGetErrorString(int code)
{
    return code == 0 ? "no error" : code == 100 ? "no ROCm-capable device is detected" : "unknown error";
}

int hipRuntimeGetVersion(int *version)
{
    *version = 70226015;
    return 0;
}

int hipGetDeviceCount(int *count)
{
    int cards[MOST];
    *count = visible(cards);
    return *count == 0 ? 100 : 0;
}

int hipDeviceGetUuid(char *uuid, int device)
{
    int cards[MOST];
    char text[21];
    if (device >= visible(cards))
        return 101;
    uuid_of(cards[device], text);
    memcpy(uuid, getenv("FAKE_HIP_MUTE") == NULL ? text + 4 : "XX\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16);
    return 0;
}

int hipDeviceGetPCIBusId(char *address, int length, int device)
{
    int cards[MOST];
    if (device >= visible(cards))
        return 101;
    snprintf(address, (size_t)length, "%04x:00:00.0", 0x11 + 0x10 * cards[device]);
    return 0;
}

int hipSetDevice(int device)
{
    (void)device;
    return answer("FAKE_HIP_CONTEXT");
}

int hipDeviceSynchronize(void)
{
    return 0;
}
