/* device.m - compute devices. */
#import "standin.h"

#define CORES 16 /* of every Neural Engine from the M1 to the M4 */

@implementation MLCPUComputeDevice
@end

@implementation MLGPUComputeDevice
- (id<MTLDevice>)metalDevice
{
    return nil;
}
@end

@implementation MLNeuralEngineComputeDevice
- (NSInteger)totalCoreCount
{
    return CORES;
}
@end

static MLCPUComputeDevice *cpu;
static MLGPUComputeDevice *gpu;
static MLNeuralEngineComputeDevice *neural;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make(void)
{
    cpu = [[MLCPUComputeDevice alloc] init];
    gpu = [[MLGPUComputeDevice alloc] init];
    neural = [[MLNeuralEngineComputeDevice alloc] init];
}

id<MLComputeDeviceProtocol> si_device_cpu(void)
{
    (void)pthread_once(&once, make);
    return cpu;
}

id<MLComputeDeviceProtocol> si_device_neural(void)
{
    struct fault_conf c;
    (void)pthread_once(&once, make);
    si_fault_conf(&c);
    return c.neural_engine ? neural : nil;
}

NSArray<id<MLComputeDeviceProtocol>> *MLAllComputeDevices(void)
{
    (void)pthread_once(&once, make);
    NSMutableArray *a = [NSMutableArray arrayWithObjects:cpu, gpu, nil];
    if (si_device_neural() != nil) {
        [a addObject:neural];
    }
    return a;
}
