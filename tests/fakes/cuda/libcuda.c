/* A libcuda.so.1 of our own, for the worker that asks the driver API through ctypes.

   FAKE_CUDA_INIT=802            what cuInit returns; `hang` and `crash` never return
   FAKE_CUDA_CONTEXT=46          what cuDevicePrimaryCtxRetain returns; `hang`, `crash` likewise
   FAKE_CUDA_CARDS=4             how many cards there are; their UUIDs are GPU-0000000N-0000-4000-8000-000000000000
   FAKE_CUDA_MUTE=1              errors have neither name nor text, as in the toolkit's stub

   CUDA_VISIBLE_DEVICES names cards by their UUIDs, the first to be device 0, as the real library has it; the others
   follow in their own order. */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static int cards(void)
{
    const char *value = getenv("FAKE_CUDA_CARDS");
    return value == NULL ? 1 : atoi(value);
}

/* The first card that CUDA shows: of all, or of those named. */
static int first(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    unsigned number;
    if (visible == NULL || sscanf(visible, "GPU-%8x", &number) != 1)
        return 0;
    return (int)number - 1;
}

int cuInit(unsigned flags)
{
    (void)flags;
    return answer("FAKE_CUDA_INIT");
}

static int say(const char **text, const char *words)
{
    if (getenv("FAKE_CUDA_MUTE") != NULL)
        return 34;
    *text = words;
    return 0;
}

int cuGetErrorName(int code, const char **text)
{
    switch (code) {
    case 0: return say(text, "CUDA_SUCCESS");
    case 46: return say(text, "CUDA_ERROR_DEVICE_UNAVAILABLE");
    case 802: return say(text, "CUDA_ERROR_SYSTEM_NOT_READY");
    default: return say(text, "CUDA_ERROR_OTHER");
    }
}

int cuGetErrorString(int code, const char **text)
{
    return say(text, code == 0 ? "no error" : "a text of the driver's");
}

int cuDriverGetVersion(int *version)
{
    *version = 13000;
    return 0;
}

int cuDeviceGetCount(int *count)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    *count = visible == NULL ? cards() : 1;
    for (; visible != NULL && *visible != '\0'; visible++)
        *count += *visible == ',';
    return 0;
}

int cuDeviceGet(int *device, int index)
{
    *device = first() + index;
    return *device < cards() ? 0 : 101;
}

int cuDeviceGetUuid(unsigned char *uuid, int device)
{
    const unsigned char rest[12] = {0, 0, 0x40, 0, 0x80, 0, 0, 0, 0, 0, 0, 0};
    uuid[0] = uuid[1] = uuid[2] = 0;
    uuid[3] = (unsigned char)(device + 1);
    memcpy(uuid + 4, rest, sizeof rest);
    return 0;
}

int cuDeviceGetPCIBusId(char *address, int length, int device)
{
    snprintf(address, (size_t)length, "0000:%02X:00.0", 0x18 + device);
    return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    (void)device;
    *context = context;
    return answer("FAKE_CUDA_CONTEXT");
}
