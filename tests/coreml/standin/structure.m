/* structure.m - MLModelStructure: a program as objects. */
#include <string.h>
#include <unistd.h>

#import "standin.h"

/* What lies behind every object here: what it refers to, and an operation's
 * place in a plan. */
struct node {
    id a, b, c, d; /* owned */
    struct structure_op op;
};

static struct node *node_of(id o)
{
    return si_data(o);
}

static void node_gone(id o)
{
    struct node *n = node_of(o);
    si_count_add(COUNT_STRUCTURE, -1);
    [n->a release];
    [n->b release];
    [n->c release];
    [n->d release];
}

static id make(Class class, id a, id b, id c, id d)
{
    id o = [[[class alloc] init] autorelease];
    struct node *n = node_of(o);
    n->a = [a retain];
    n->b = [b retain];
    n->c = [c retain];
    n->d = [d retain];
    return o;
}

#define NODE_CLASS                              \
    STANDIN_CLASS(COUNT_STRUCTURE, struct node) \
    -(void)dealloc                              \
    {                                           \
        node_gone(self);                        \
        [super dealloc];                        \
    }

@implementation MLModelStructureProgramValueType
NODE_CLASS
@end

@implementation MLModelStructureProgramValue
NODE_CLASS
@end

@implementation MLModelStructureProgramNamedValueType
NODE_CLASS

- (NSString *)name
{
    return node_of(self)->a;
}

- (MLModelStructureProgramValueType *)type
{
    return node_of(self)->b;
}

@end

@implementation MLModelStructureProgramBinding
NODE_CLASS

- (NSString *)name
{
    return node_of(self)->a;
}

- (MLModelStructureProgramValue *)value
{
    return node_of(self)->b;
}

@end

@implementation MLModelStructureProgramArgument
NODE_CLASS

- (NSArray<MLModelStructureProgramBinding *> *)bindings
{
    return node_of(self)->a;
}

@end

@implementation MLModelStructureProgramOperation
NODE_CLASS

- (NSString *)operatorName
{
    return node_of(self)->a;
}

- (NSDictionary<NSString *, MLModelStructureProgramArgument *> *)inputs
{
    return node_of(self)->b;
}

- (NSArray<MLModelStructureProgramNamedValueType *> *)outputs
{
    return node_of(self)->c;
}

- (NSArray<MLModelStructureProgramBlock *> *)blocks
{
    return node_of(self)->d;
}

@end

@implementation MLModelStructureProgramBlock
NODE_CLASS

- (NSArray<MLModelStructureProgramNamedValueType *> *)inputs
{
    return node_of(self)->a;
}

- (NSArray<NSString *> *)outputNames
{
    return node_of(self)->b;
}

- (NSArray<MLModelStructureProgramOperation *> *)operations
{
    return node_of(self)->c;
}

@end

@implementation MLModelStructureProgramFunction
NODE_CLASS

- (NSArray<MLModelStructureProgramNamedValueType *> *)inputs
{
    return node_of(self)->a;
}

- (MLModelStructureProgramBlock *)block
{
    return node_of(self)->b;
}

@end

@implementation MLModelStructureProgram
NODE_CLASS

- (NSDictionary<NSString *, MLModelStructureProgramFunction *> *)functions
{
    return node_of(self)->a;
}

@end

@implementation MLModelStructure
NODE_CLASS

- (MLModelStructureProgram *)program
{
    return node_of(self)->a;
}

+ (void)loadContentsOfURL:(NSURL *)url
        completionHandler:
            (void (^)(MLModelStructure *modelStructure, NSError *error))handler
{
    si_elsewhere(^{
      struct mil_program *p = NULL;
      NSError *why = si_structure_read(url, &p, NULL);
      handler(why == nil ? si_structure_of(p, NULL, NULL, NULL) : nil, why);
      mil_free(p);
    });
}

@end

struct structure_op *si_structure_op_of(MLModelStructureProgramOperation *op)
{
    return &node_of(op)->op;
}

/* --- from a program --- */

/* What operations of a plan are weighed by. */
struct plan_of {
    const void *plan; /* NULL: none */
    const char *ops;
    const char *prefix; /* "ios18." */
    double sum;         /* of all weights */
};

static NSString *text(const char *s)
{
    return [NSString stringWithUTF8String:s];
}

static NSArray *named(struct mil_value *const *v, size_t n)
{
    NSMutableArray *a = [NSMutableArray array];
    for (size_t i = 0; i < n; i++) {
        id type =
            make([MLModelStructureProgramValueType class], nil, nil, nil, nil);
        [a addObject:make([MLModelStructureProgramNamedValueType class],
                          text(v[i]->name), type, nil, nil)];
    }
    return a;
}

static id argument(const struct mil_arg *arg)
{
    NSMutableArray *a = [NSMutableArray array];
    for (size_t i = 0; i < arg->n; i++) {
        const struct mil_value *v = arg->b[i].value;
        id value = v == NULL ? make([MLModelStructureProgramValue class], nil,
                                    nil, nil, nil)
                             : nil;
        [a addObject:make([MLModelStructureProgramBinding class],
                          v != NULL ? text(v->name) : nil, value, nil, nil)];
    }
    return make([MLModelStructureProgramArgument class], a, nil, nil, nil);
}

static bool is_constant(const struct mil_op *op)
{
    return strcmp(op->type, "const") == 0 ||
           strncmp(op->type, "constexpr_", 10) == 0;
}

/* Elements, open dimensions as 1. */
static double elements(const struct mil_type *t)
{
    double n = 1;
    for (int i = 0; i < t->rank; i++) {
        n *= t->dims[i] > 0 ? (double)t->dims[i] : 1;
    }
    return n;
}

static double cost(const struct mil_op *op)
{
    double n = 0;
    for (size_t i = 0; i < op->n_args; i++) {
        for (size_t k = 0; k < op->args[i].n; k++) {
            const struct mil_value *v = op->args[i].b[k].value;
            n += v != NULL ? elements(&v->type) : 0;
        }
    }
    for (size_t i = 0; i < op->n_outputs; i++) {
        n += elements(&op->outputs[i]->type);
    }
    return n;
}

/* Whether the name is one of a comma-separated list; "" is every name. */
static bool listed(const char *ops, const char *name)
{
    size_t n = strlen(name);
    if (ops[0] == '\0') {
        return true;
    }
    for (const char *s = ops; s != NULL; s = strchr(s, ',')) {
        s += *s == ',';
        if (strncmp(s, name, n) == 0 && (s[n] == ',' || s[n] == '\0')) {
            return true;
        }
    }
    return false;
}

static id block_of(const struct mil_block *b, struct plan_of *p);

static id operation(const struct mil_op *op, struct plan_of *p)
{
    NSMutableDictionary *in = [NSMutableDictionary dictionary];
    for (size_t i = 0; i < op->n_args; i++) {
        [in setObject:argument(&op->args[i]) forKey:text(op->args[i].name)];
    }
    NSMutableArray *blocks = [NSMutableArray array];
    for (size_t i = 0; i < op->n_blocks; i++) {
        [blocks addObject:block_of(op->blocks[i], p)];
    }
    NSString *name = text(op->type);
    if (strcmp(op->type, "const") != 0) {
        name = [text(p->prefix) stringByAppendingString:name];
    }
    id o = make([MLModelStructureProgramOperation class], name, in,
                named(op->outputs, op->n_outputs), blocks);
    if (p->plan != NULL && !is_constant(op)) {
        *si_structure_op_of(o) = (struct structure_op){
            .plan = p->plan,
            .counted = true,
            .on_ane = p->ops == NULL || !listed(p->ops, op->type),
            .weight = cost(op),
        };
        p->sum += cost(op);
    }
    return o;
}

static id block_of(const struct mil_block *b, struct plan_of *p)
{
    NSMutableArray *ops = [NSMutableArray array];
    NSMutableArray *names = [NSMutableArray array];
    for (size_t i = 0; i < b->n_ops; i++) {
        [ops addObject:operation(b->ops[i], p)];
    }
    for (size_t i = 0; i < b->n_outputs; i++) {
        [names addObject:text(b->outputs[i]->name)];
    }
    return make([MLModelStructureProgramBlock class],
                named(b->inputs, b->n_inputs), names, ops, nil);
}

/* Weights become shares of their sum. */
static void share(MLModelStructureProgramBlock *b, double sum)
{
    for (MLModelStructureProgramOperation *o in [b operations]) {
        si_structure_op_of(o)->weight /= sum > 0 ? sum : 1;
        for (MLModelStructureProgramBlock *inner in [o blocks]) {
            share(inner, sum);
        }
    }
}

/* Operations are named by the system that brought their form: CoreML5 is of
 * iOS 15, and so on. */
static void prefix_of(const struct mil_function *f, char out[32])
{
    int n = 0;
    if (sscanf(f->opset, "CoreML%d", &n) == 1) { /* NOLINT: two digits */
        (void)snprintf(out, 32, "ios%d.", n + 10);
    } else {
        out[0] = '\0';
    }
}

MLModelStructure *si_structure_of(const struct mil_program *p, const void *plan,
                                  const struct mil_function *fn,
                                  const char *ops)
{
    NSMutableDictionary *functions = [NSMutableDictionary dictionary];
    for (size_t i = 0; i < p->n_functions; i++) {
        const struct mil_function *f = p->functions[i];
        char prefix[32];
        prefix_of(f, prefix);
        struct plan_of x = {
            .plan = f == fn ? plan : NULL, .ops = ops, .prefix = prefix};
        id block = block_of(f->body, &x);
        share(block, x.sum);
        id o = make([MLModelStructureProgramFunction class],
                    named(f->inputs, f->n_inputs), block, nil, nil);
        [functions setObject:o forKey:text(f->name)];
    }
    id program =
        make([MLModelStructureProgram class], functions, nil, nil, nil);
    return make([MLModelStructure class], program, nil, nil, nil);
}

NSError *si_structure_read(NSURL *url, struct mil_program **ret,
                           struct compiled *from)
{
    struct compiled c = {0};
    struct err e = {0};
    NSError *why = si_compiled_read(url, &c);
    if (why != nil && access(c.path, F_OK) == 0) {
        /* coremltools issue 2757: a path of the wrong kind ends the process */
        si_terminate([NSString
            stringWithFormat:@"std::__1::ios_base::failure: Failed to open "
                             @"file: %s/coremldata.bin. It is not a valid "
                             @".mlmodelc file.",
                             c.path]);
    }
    if (why == nil && mil_read(c.path, ret, &e) < 0) {
        why = si_error(MLModelErrorIO, @"%s", e.msg);
    }
    if (from != NULL) {
        *from = c;
    }
    return why;
}
