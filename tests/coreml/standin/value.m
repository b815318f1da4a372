/* value.m - MLFeatureValue, providers of features, options. */
#import "standin.h"

/* --- MLFeatureValue --- */

struct value {
    MLMultiArray *array; /* owned */
};

@implementation MLFeatureValue

STANDIN_CLASS(COUNT_VALUE, struct value)

static struct value *value_of(MLFeatureValue *v)
{
    return si_data(v);
}

- (void)dealloc
{
    si_count_add(COUNT_VALUE, -1);
    [value_of(self)->array release];
    [super dealloc];
}

+ (instancetype)featureValueWithMultiArray:(MLMultiArray *)value
{
    MLFeatureValue *v = [[[self alloc] init] autorelease];
    value_of(v)->array = [value retain];
    return v;
}

- (id)copyWithZone:(NSZone *)zone
{
    (void)zone;
    return [self retain]; /* it never changes */
}

- (MLFeatureType)type
{
    return value_of(self)->array != nil ? MLFeatureTypeMultiArray
                                        : MLFeatureTypeInvalid;
}

- (BOOL)isUndefined
{
    return value_of(self)->array == nil;
}

- (MLMultiArray *)multiArrayValue
{
    return value_of(self)->array;
}

- (CVPixelBufferRef)imageBufferValue
{
    return NULL; /* no image features here */
}

@end

/* --- providers --- */

struct provider {
    NSDictionary *values; /* owned: MLFeatureValue by name */
};

@implementation MLDictionaryFeatureProvider

STANDIN_CLASS(COUNT_PROVIDER, struct provider)

static struct provider *provider_of(id p)
{
    return si_data(p);
}

- (void)dealloc
{
    si_count_add(COUNT_PROVIDER, -1);
    [provider_of(self)->values release];
    [super dealloc];
}

- (instancetype)initWithDictionary:(NSDictionary<NSString *, id> *)dictionary
                             error:(NSError **)error
{
    self = [super init];
    NSMutableDictionary *values = [NSMutableDictionary dictionary];
    for (NSString *name in dictionary) {
        id v = [dictionary objectForKey:name];
        if ([v isKindOfClass:[MLMultiArray class]]) {
            v = [MLFeatureValue featureValueWithMultiArray:v];
        }
        if (![v isKindOfClass:[MLFeatureValue class]]) {
            [self release];
            return si_fail(error, si_error(MLModelErrorFeatureType,
                                           @"Feature %@ is of a type that the "
                                           @"stand-in has not",
                                           name));
        }
        [values setObject:v forKey:name];
    }
    provider_of(self)->values = [values copy];
    return self;
}

- (NSDictionary<NSString *, MLFeatureValue *> *)dictionary
{
    return provider_of(self)->values;
}

- (NSSet<NSString *> *)featureNames
{
    return [NSSet setWithArray:[provider_of(self)->values allKeys]];
}

- (MLFeatureValue *)featureValueForName:(NSString *)featureName
{
    return [provider_of(self)->values objectForKey:featureName];
}

- (MLFeatureValue *)objectForKeyedSubscript:(NSString *)featureName
{
    return [self featureValueForName:featureName];
}

@end

/* What a prediction returns: Core ML's own class, known only by its protocol.
 */
@interface StandinResult : NSObject <MLFeatureProvider>
@end

@implementation StandinResult

STANDIN_CLASS(COUNT_RESULT, struct provider)

- (void)dealloc
{
    si_count_add(COUNT_RESULT, -1);
    [provider_of(self)->values release];
    [super dealloc];
}

- (NSSet<NSString *> *)featureNames
{
    return [NSSet setWithArray:[provider_of(self)->values allKeys]];
}

- (MLFeatureValue *)featureValueForName:(NSString *)featureName
{
    return [provider_of(self)->values objectForKey:featureName];
}

@end

id<MLFeatureProvider> si_result_provider(NSDictionary *values)
{
    StandinResult *r = [[[StandinResult alloc] init] autorelease];
    provider_of(r)->values = [values copy];
    return r;
}
