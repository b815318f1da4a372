/* limits.h - every limit of aned, each with its reason.
 *
 * A limit that is not here does not exist: queues, buffers and tables name one
 * of these. Units stand in the name or the comment.
 */
#pragma once

#define KIB(n) ((size_t)(n) << 10)
#define MIB(n) ((size_t)(n) << 20)

/* --- GGUF: what a file may claim before its size is even looked at --- */
#define GGUF_KV_MAX        65536u  /* real files have < 100 */
#define GGUF_TENSORS_MAX   65536u  /* the largest public MoE has < 3000 */
#define GGUF_KEY_MAX       256u    /* bytes; longest known key is 60 */
#define GGUF_NAME_MAX      127u    /* bytes; ggml's own is 63 */
#define GGUF_STRING_MAX    MIB(16) /* a chat template or a merged vocab line */
#define GGUF_ARRAY_MAX     (1u << 24) /* elements; vocabularies are < 2^19 */
#define GGUF_DIMS_MAX      4u
#define GGUF_ALIGNMENT_MAX 65536u
#define GGUF_PARTS_MAX     128u /* of a split model; a worker holds two descriptors of each */

/* --- other forms of source --- */
#define SAFETENSORS_HEADER_MAX MIB(16) /* 65536 tensors of 150 bytes are 10 MB */
#define SAFETENSORS_DIMS_MAX   8u      /* shapes that are only passed over */
#define HF_CONFIG_MAX    MIB(1)  /* config.json; 2 KB are usual */
#define HF_INDEX_MAX     MIB(16) /* model.safetensors.index.json: as the headers */
#define HF_TOKENIZER_MAX MIB(64) /* tokenizer.json: 33 MB with 262,144 tokens */
#define SOURCE_NAME_MAX  255u    /* bytes of a file's name in a model's folder */
/* --- ONNX: the file of the graph; its weights usually lie in others --- */
#define ONNX_MODEL_BYTES_MAX MIB(512) /* protobuf's own is 2 GiB, and weights
                                         in it are copied to memory */
#define ONNX_MEMORY_BASE     MIB(64)  /* of messages; beside it */
#define ONNX_MEMORY_FACTOR   4u       /* bytes of memory a byte of the file */
#define ONNX_NODES_MAX       (1u << 17) /* 512 layers of 40 have 20,000 */
#define ONNX_VALUES_MAX      (1u << 19)
#define ONNX_NEST_MAX        4u    /* graphs inside graphs; exporters write 1 */
#define ONNX_ARGS_MAX        64u   /* inputs, outputs or attributes of a node */
#define ONNX_LIST_MAX        4096u /* numbers in an attribute */
#define ONNX_DIMS_MAX        8u
#define ONNX_NAME_MAX        512u  /* bytes; exporters write paths as names */
#define ONNX_PATH_MAX        512u  /* bytes of an external file's path */
#define ONNX_FILES_MAX       96u   /* external ones of a model */
#define ONNX_OPSETS_MAX      64u
#define ONNX_CACHE_MAX       (1u << 22) /* positions in a table of rotations */
#define ONNX_SHOWN_MAX       64u   /* nodes that were not understood */

/* --- Core ML packages --- */
#define MIL_RANK_MAX         8u /* the runtime's own is 5; readers see 6 */
#define MIL_OPS_MAX          (1u << 18)
#define MIL_SPEC_BYTES_MAX   MIB(512) /* protobuf's own is 2 GiB */
#define MIL_MANIFEST_MAX     MIB(1)
#define MIL_NEST_MAX         16                  /* blocks inside blocks */
#define MIL_ROUNDS_MAX       (1u << 20)          /* of one while_loop */
#define MIL_ARGS_MAX         64       /* operands or attributes of one op */
#define MIL_FUNCTIONS_MAX    256u     /* one a T value is a handful */
#define MIL_FEATURES_MAX     4096u    /* inputs, or states, of one function */
#define MIL_SHAPES_MAX       128u     /* enumerated shapes; Core ML's own */
#define MIL_WEIGHT_FILES_MAX 256u     /* of one package */
#define MIL_MEMORY_FACTOR    64u      /* bytes of memory a byte of spec may cost */
#define MIL_TENSOR_BYTES_MAX ((uint64_t)1 << 34) /* one interpreter value */

/* --- models --- */
#define MODEL_LAYERS_MAX      512u
#define MODEL_CONV_MAX        64u /* taps of a short convolution: a state block */
#define MODEL_DIM_MAX         65536u /* the ANE's axis cap */
#define MODEL_EXPERTS_MAX     1024u   /* of a layer: fp16 counts them exactly */
#define MODEL_EXPERT_GROUPS   32u     /* constants that hold a layer's experts */
#define MODEL_VOCAB_MAX       (1u << 20)
#define MODEL_CONTEXT_MAX     (1u << 20) /* tokens */
#define MODEL_LABELS_MAX      1024u /* classes of an encoder */
#define MODEL_LABEL_BYTES_MAX 128u  /* of a label's name */
#define MODEL_BAND_GROUPS     64u   /* heads of keys of an encoder's layer */
#define TAGS_TOKENS_MAX       (1u << 17) /* of one text to be labelled */
#define TAGS_INPUTS_MAX       256u       /* texts of one request */
#define TAGS_QUEUE_MAX        2048u      /* texts that wait for one encoder */
#define TAGS_BYTES_MAX        MIB(128) /* of a text's path through its labels */
#define EMBED_DIM_MAX         32768u /* numbers of a vector: those of a step's
                                        streams fit a frame */
#define EMBED_INPUTS_MAX      2048u      /* texts of one request: OpenAI's */
#define EMBED_TOKENS_MAX      (1u << 19) /* of them all; OpenAI's are 300,000 */
#define EMBED_AT_ONCE         8u         /* of a request's texts in one engine */
#define ENCODER_ROWS_MAX      4096u /* tokens that an encoder reads at once */
#define ENCODER_PACK_ROWS     512u  /* that short texts share: NOTES.md, 127 */
#define ENCODER_PACK_ALIGN    16u  /* where one begins: lanes of a sum (backend.h) */
#define ENCODER_TEXTS_MAX     32u   /* of one frame, and of a request in the queue:
                                       all of them with 16 rows fill a run */
#define ENCODER_WHOLE_MAX     2048u /* the same without a window: heads * n^2 scores */
#define MODEL_CONTEXT_DEFAULT 4096u      /* of a conversion that names none */
/* ... and is for no Neural Engine: what agents' first turns need, while keys and
 * values of one text of that length are at most this part of the memory. The
 * quality gate computes all positions: with more it would take many minutes. */
#define MODEL_CONTEXT_LONG    32768u
#define MODEL_CONTEXT_PARTS   4u
#define MODEL_NAME_MAX        128u       /* bytes */
#define MODELS_MAX            256u       /* bundles under one home */
#define ALIASES_MAX           64u        /* lines of [aliases]: a setup has a handful of clients */
#define BUNDLE_JSON_MAX       MIB(4)
#define TIERS_MAX             8u /* contexts of one conversion: proto/tier.h */
#define SHARDS_MAX            512u
#define BUNDLE_FILES_MAX      4096u /* three a package, and goldens */
#define EXPERT_PACKAGES_MAX   1024u /* groups of experts: 128 experts of 60 layers
                                       by eights */
#define EXPERT_GROUP          8u    /* experts of a package, unless a profile's
                                       programs are smaller */
/* Functions of experts that an engine keeps open; the one that was not used for
 * longest makes way. On the CPU each has memory for its rows. */
#define EXPERTS_OPEN_MAX      1024u
/* Programs that one process loads: peers met the end at 119 to 128. */
#define COREML_MODELS_MAX     100u

/* --- conversion --- */
#define QUANT_GROUP_MAX 64u /* rows that share a palette: a block of them is read at once */
#define QUANT_RULES_MAX 64u /* --quant-for of one conversion */
/* nats of --target-kl: above 1 nothing is left of a model, below 1e-6 fp32
 * logits are no judge. */
#define TARGET_KL_MIN 1e-6
#define TARGET_KL_MAX 1.0
#define TARGET_BYTES_MAX ((uint64_t)1 << 42) /* of --target-bytes */
#define QUANT_HESSIAN_MAX 16384u /* columns of a matrix with feedback: 1.1 GB, twice */

#define IMPORT_JSON_MAX   MIB(1) /* a manifest: some lines a package are usual */
#define IMPORT_SETS_MAX   16u /* --set of one import: a manifest has as many numbers */
#define IMPORT_FILE_BYTES ((uint64_t)64 << 30) /* RLIMIT_FSIZE of a worker that imports */
#define CALIBRATE_TOKENS    128u /* of a sequence */
#define CALIBRATE_SEQUENCES 64u  /* gemma-3-270m, lut4: KL 0.074; of 32 it is 0.089 */
#define CALIBRATE_SEQUENCES_MIN 8u /* fewer say too little of a matrix's inputs */
#define CALIBRATE_BYTES_MAX ((uint64_t)3 << 29) /* 1.5 GiB beside the mapped source */
#define CALIBRATE_KEYS_MAX  MIB(256) /* of them, kept keys while samples are written */
#define CALIBRATE_TEXT_MAX  TEXT_BYTES_MAX /* --calibration FILE */

/* --- text --- */
#define TOKEN_BYTES_MAX   4096u      /* one vocabulary entry */
#define TEXT_BYTES_MAX    MIB(4)     /* one prompt */
#define TOKENS_MAX        (1u << 20) /* of one text */
#define STOP_STRINGS_MAX  16u        /* OpenAI takes 4; llama-server any */
#define STOP_BYTES_MAX    1024u      /* one stop string */
#define CHAT_MESSAGES_MAX 4096u
#define FIM_FILES_MAX     256u       /* llama.vim sends 16 */
#define FIM_WINDOW        2048u      /* tokens around a gap: llama-server's batch */
#define TOOLS_MAX         512u       /* of one request; OpenAI takes 128, agents with servers of tools have more */
#define TOOL_NAME_MAX     256u       /* bytes; OpenAI's is 64, other dialects name none */
#define TOOL_BYTES_MAX    KIB(256)   /* of one tool as JSON text; the longest recorded one has 12 KB */
#define EFFORT_BYTES_MAX  64u        /* reasoning_effort; known words have 7 */
#define CALLS_MAX         128u       /* of tools in one message, and in one answer: OpenAI's tools of a request */

/* --- what an answer consists of --- */
#define REPLY_HELD_MAX KIB(16) /* of what may be a call: its head, or a value without quotes */
#define REPLY_NAME_MAX 256u    /* bytes; of a tool (OpenAI: 64), a parameter, a number */
#define REPLY_ROWS_MAX 8u     /* marks of a form, and of thoughts */
/* Of a tool's schema in a constraint, which has levels of its own, up to
 * JSON_DEPTH_MAX; and where parameters are held one by one. */
#define REPLY_SCHEMA_DEPTH_MAX 18u
#define REPLY_PARAM_DEPTH_MAX  10u
#define REPLY_ARGS_MAX MIB(1)  /* of a call; longer ones are never found whole */
#define TEXT_MARKS_MAX 16u     /* control tokens that are text to the parser */

/* --- chat templates --- */
#define JINJA_TEXT_MAX   KIB(256) /* a template; the longest known is 20 KB */
#define JINJA_TREE_BYTES MIB(32)  /* its tokens, and its tree: 200 bytes a node */
#define JINJA_NODES_MAX  65536u   /* of its tree; the longest known has 3000 */
#define JINJA_NAMES_MAX  4096u    /* different ones; the longest known has 150 */
#define JINJA_DEPTH_MAX  64       /* nesting that the parser follows */
#define JINJA_TREE_MAX   128      /* nodes on a path of its tree; NOTES 35 */
#define JINJA_LEVELS_MAX 256      /* nodes and values that a rendering is inside */
#define JINJA_ARENA_MAX  MIB(64)  /* values of one rendering */
#define JINJA_STEPS_MAX  5000000u /* expressions of one rendering */
#define JINJA_STEP_BYTES 256u     /* looked through in a step: 1 GiB, a second */
#define JINJA_RANGE_MAX  100000u  /* items of a range; jinja2's sandbox has this */
#define JINJA_WIDTH_MAX  1000000  /* of a padded field, an indent */
#define JINJA_DIGITS_MAX 300      /* behind the point: a double has 1074 at most */

/* --- grammars of constrained output (model/grammar) --- */
#define GRAMMAR_SOURCE_MAX KIB(256)   /* text of a grammar, a pattern */
#define GRAMMAR_ARENA_MAX  MIB(64)    /* while it is compiled */
#define GRAMMAR_STATES_MAX (1u << 18) /* a repeated rule has one a time */
#define GRAMMAR_EDGES_MAX  (1u << 19)
#define GRAMMAR_RULES_MAX  (1u << 16)
#define GRAMMAR_NAME_MAX   127u  /* bytes of a rule's name */
#define GRAMMAR_DEPTH_MAX  64    /* groups in each other: parsers recurse */
#define GRAMMAR_REPEAT_MAX 65536u /* a bound of a repetition */
#define GRAMMAR_PATH_MAX   256u  /* bytes of a path in a schema, for errors */
#define GRAMMAR_PARTS_MAX  32u   /* schemas that hold at once (allOf) */
#define GRAMMAR_REFS_MAX   4096u /* different references of a schema */
#define GRAMMAR_MEET_MAX   8192u /* states of what several words about a string allow */
#define GRAMMAR_MEET_HEADS (1u << 18) /* places in their grammars at these states */
#define GRAMMAR_MEET_LENGTH 512u /* characters beyond minLength, beside a pattern */
#define GRAMMAR_TEXT_MAX   MIB(1) /* of a constraint: schemas of all tools */
#define GRAMMAR_FORMS_MAX  16384u /* in one constraint, with strings to look for */
#define GRAMMAR_FORMS_DEPTH_MAX 24 /* forms in each other: they recurse */
#define GRAMMAR_FIND_MAX   KIB(4) /* bytes of strings that are looked for at once */
#define MATCH_HEADS_MAX    8192u /* places in a grammar where a text may stand */
#define MATCH_STACK_MAX    512u  /* rules in each other; readers take 32 levels */
#define MATCH_STACKS_MAX   (1u << 18)
#define MATCH_CONFIGS_MAX  16384u  /* kept; a walk has at most TOKEN_BYTES_MAX */
#define MATCH_BYTES_MAX    MIB(32) /* of them */
#define MATCH_PLAIN_MAX    40u /* characters that are looked ahead at once */
#define MATCH_PLAIN_MIN    32u /* fewer are looked at anew: most tokens are shorter */
#define CONSTRAINT_BYTES_MAX KIB(320) /* text that goes to the engine: a grammar
                                     and what stands around it */
#define CONSTRAINTS_IDLE 8u /* kept of those that no stream has */
#define FORCED_BYTES_MAX 512u /* text that is looked ahead */
#define MASK_CACHE_MAX     MIB(16) /* 850 masks of 151,936 tokens */

/* --- JSON (cJSON takes up to 40 times the memory of its input) --- */
#define JSON_DEPTH_MAX   32
#define JSON_MEMBERS_MAX 4096 /* per object: logit_bias has many */
#define JSON_MEMBERS_BIG (1u << 20) /* of a file in a sandbox: a vocabulary */

/* --- frames between serve and its children --- */
#define FRAME_WORKER_MAX KIB(64) /* convert worker: progress and JSON */
#define FRAME_ENGINE_MAX MIB(8)  /* a prompt of 2^20 tokens is 4 MiB */
#define FRAME_QUEUE_MAX  MIB(32) /* bytes serve keeps for a slow child */

/* --- engine --- */
#define PATH_BYTES_MAX       1024u   /* with the NUL; struct bundle's dir */
#define BACKEND_NAME_MAX     32u     /* with the NUL; "interpreter" */
#define ENGINE_EVENTS_MAX    8u      /* failures of packages, not yet told */
#define NOTICE_PACKAGE_MAX   64u     /* with the NUL; longer names are cut */
#define ARITH_BYTES_MAX      128u    /* with the NUL; backend_info.arith */
#define BACKEND_OP_NAME_MAX  96u     /* with the NUL; longer ones are cut */
#define BACKEND_OP_TYPE_MAX  48u     /* the same */
#define BACKEND_ASK_MS       250u /* between two looks for a reason to stop */
#define ENGINE_SEQS_MAX      256u /* open sequences of one engine */
#define READY_BYTES_MAX      ((uint64_t)1 << 48) /* in READY: of a sequence */
#define ENGINE_STEP_ROWS_MAX 512u /* rows of one step, all sequences */
/* Addresses, not memory, of a compiled program's values, all rows. */
#define ENGINE_ROWS_BYTES_MAX ((size_t)1 << 30)
/* Plans of one model that runs as a whole, one for each set of input shapes:
 * enough for every T of a chunk that is split, in the memory of one more large
 * model's values. The plan in use is kept, however large it is. */
#define ENGINE_PLANS_MAX       64u
#define ENGINE_PLANS_BYTES_MAX MIB(256)
#define ENGINE_CHUNK_MAX     512u /* prefill rows of one sequence a step */
#define ENGINE_HEAD_ROWS_MAX 32u  /* whose logits are made at once */
#define ENGINE_WIDTHS_MAX    16u  /* that a package runs as: engine/widths.c */
#define ENGINE_DRAFTS_MAX    16u
#define ENGINE_MARKS_MAX     4u /* places at which a recurrent state is kept, of a sequence */
#define ENGINE_SCORES_MAX    512u  /* tokens of prompts a step: 86 KB */
#define ENGINE_LOGPROBS_MAX  20u   /* OpenAI's top_logprobs */
#define ENGINE_BIAS_MAX      1024u /* logit_bias entries */
#define SAMPLERS_MAX         16u   /* of one chain; there are nine kinds */
/* What ends a repetition for the sampler dry: texts of a request, and the
 * tokens that they are (msg_sampling.breaks, which every step sends again). */
#define DRY_TEXTS_MAX        64u    /* texts; llama.cpp's default has four */
#define DRY_TEXT_BYTES       40u    /* of one: llama.cpp's */
#define DRY_TAIL_MAX         20u    /* tokens after the first: llama.cpp's */
#define DRY_GROUPS_MAX       256u   /* looked through at each token looked back */
#define DRY_BREAKS_MAX       32768u /* numbers; the default texts take 3917 of Llama 3 */
#define ENGINE_THREADS_MAX   64u
#define ENGINE_MARGIN_MAX    100000 /* thousandths of a logit */
#define ENGINE_CRASHES_MAX   3u      /* then the model is marked failed */
#define ENGINE_LOAD_MS       300000u /* one package's, from reading to ready */
/* The same where the system compiles it for a device, and a width's first
 * prediction there: 25 minutes have been reported. */
#define ENGINE_WARM_MS       1800000u
/* What a probe does with each package (engine/probe/probe.h). */
#define PROBE_TIMED          20u  /* predictions of a width that are timed */
#define PROBE_REPEATS        200u /* more of a function, for their bits: some
                                     defects show after 100 (facts of Core ML) */
#define PROBE_ROWS_BYTES_MAX MIB(64) /* results kept to be compared */
#define PROBE_OPS_MAX        64u  /* kinds of operations told of a function */
#define PROBE_LOST_MAX       8u   /* children of one probe that end by themselves */
#define PROBE_KNOWN_MAX      16u  /* machines that a child is told of */
#define PROBE_MARGIN_ROWS    16u  /* tokens whose leads are compared */
#define PROBE_SHARE_MIN      0.985 /* of a plan's cost; less is warned about */
#define PROBE_COSINE_MIN     0.97 /* of a result with what is right: design 6 */
#define PROBE_IDLE_MS        60000u /* without work, then models are probed again */
#define PROBE_STEP_MS        120000u /* a prediction, also the reference's */
/* What a prediction tells (convert/residency): texts in bytes, with the NUL. */
#define PREDICT_DETAIL_MAX   80u  /* what it is of: "x is fp32[1,64]" */
#define PREDICT_REASON_MAX   224u /* a rule's text and that */
#define PREDICT_FINDINGS_MAX 24u  /* of a function or a program: one a rule */
#define PREDICT_KINDS_MAX    64u  /* kinds of operations of a function */
#define PREDICT_MAP_MAX      KIB(16) /* of a function: part of a worker's frame */
#define PREDICT_REASONS      16u  /* of a bundle; functions have the rest */
#define STATE_PARTS_MAX      64u /* files of one saved timeline */
#define STATE_ARRAYS_MAX     (2u * SHARDS_MAX) /* geometry entries of a file */
#define STATE_BLOCK          64u /* positions; a file has a multiple of it */
#define STATE_BLOCK_MAX      MIB(256) /* bytes of one, all layers */
#define CACHE_FILES_MAX      1024u /* saved states on disk */
#define STATE_JOBS_MAX       16u /* saves and loads an engine has at once */
#define ENGINE_STEP_MS       120000u /* one step; a hung engine is killed */

/* --- HTTP --- */
#define HTTP_URL_MAX         KIB(4)
#define HTTP_HEADER_LINE_MAX KIB(8)
#define HTTP_HEADERS_MAX     KIB(32)
#define HTTP_HEADER_COUNT    64u
#define HTTP_BODY_MAX        KIB(64) /* of requests without a text */
#define HTTP_CHAT_BODY_MAX   MIB(4)
#define HTTP_CONNS_MAX       4096u
#define SERVE_FILES          256u /* descriptors of serve beside its connections */
#define HTTP_LISTENERS_MAX   16u   /* sockets passed to the process at start */
#define HTTP_BACKLOG         4096 /* connects that wait; beyond: EAGAIN, no 503 */
#define HTTP_REQUESTS_MAX    1000u /* per connection */
#define HTTP_HEADER_MS       10000u
#define HTTP_REQUEST_MS      60000u /* first byte to last of one request */
#define HTTP_BODY_IDLE_MS    10000u
#define HTTP_IDLE_MS         60000u
#define HTTP_STALL_MS        30000u   /* write without progress */
#define HTTP_OUT_HIGH        KIB(256) /* pause production */
#define HTTP_OUT_LOW         KIB(64)  /* resume it */
#define HTTP_ARGS_MAX        4u       /* {} in one route */
#define HTTP_AHEAD_MAX       KIB(64) /* pipelined bytes kept during a reply */
#define HTTP_LINGER_MS       1000u   /* to read and drop after a refusal */
#define HTTP_LINGER_BYTES    MIB(8)  /* of that: clients that send all before they read see the answer */
#define HTTP_EXTRA_MAX       1024u   /* bytes of a reply's own headers */
#define HTTP_PAGE_MAX        KIB(96) /* the page of GET / */
#define HTTP_REPLY_MAX       MIB(64) /* bytes queued on one connection */
#define HTTP_QUEUED_MAX      MIB(256) /* of large whole answers, one socket's */
#define HTTP_BODIES_MAX      MIB(256) /* request bodies of all connections */

/* --- loopback TCP, which other users of the machine reach too --- */
#define HTTP_TCP_MAX       8u   /* addresses that the daemon listens on */
#define HTTP_TCP_CONNS_MAX 256u /* of each; the Unix socket keeps its own */
#define HTTP_ADDRESS_TEXT  64u  /* with the NUL; "[::1]:65535" */
#define HTTP_ORIGINS_MAX   16u  /* [http] cors_origins */
#define HTTP_ORIGIN_MAX    200u /* bytes: a scheme, a host's name, a port */
#define HTTP_KEY_DIGEST    32u  /* bytes of a SHA-256 */
#define KEY_BYTES_MIN      24u  /* of a key; ours has 69 */
#define KEY_BYTES_MAX      256u

#define HTTP_HELD_MAX        256u    /* requests before the daemon is ready; they run in one go */
#define HTTP_KEEPALIVE_MS    15000u  /* silence of an event stream */

/* --- serve --- */
#define LOOP_CPU_MS     20u    /* of the loop between two polls */
#define RESUME_MAX      64u    /* resumable streams; then 503 */
#define RESUME_KEPT_MAX MIB(1) /* bytes of events kept of one */
#define RESUME_S        120u   /* without a reader; also after its end */
#define DEADLINE_MAX_MS 86400000u /* a day: longer needs no deadline */
#define QUEUE_MAX      64u  /* generations waiting; then 503 */
#define STREAMS_MAX    32u  /* generations running in one engine */
#define SESSIONS_KEPT_MAX 1024u /* that clients named */
#define SESSIONS_MAX   64u  /* warm sequences of one engine */
#define GEN_ARENA_MAX  MIB(16) /* strings and arrays of one request */
#define ANSWER_FIELDS_MAX 64u /* members that a request picks from its answer */
#define CHOICES_MAX    16u  /* n of one request */
#define PROMPTS_MAX    32u  /* of one request; LangChain sends 20 */
#define ANSWER_CHOICES_MAX 64u /* prompts times n: they fill one queue */
/* Of an answer that is not streamed: 4096 tokens with 20 alternatives are 9 MiB. */
#define ANSWER_BYTES_MAX  MIB(16)  /* then it ends, with "length" */
#define ANSWERS_BYTES_MAX MIB(128) /* all such answers; then 503 */
/* Answers that clients may go on from by their id (serve/gen/answers.h). */
#define ANSWERS_KEPT_MAX   256u
#define ANSWERS_KEPT_BYTES MIB(64)  /* together, in memory */
#define ANSWER_KEPT_BYTES  MIB(8)   /* of one: a conversation is 4 MiB at most */
#define ANSWER_READ_BYTES  KIB(256) /* of one's JSON, read on the loop: 12 ms at worst */
#define DRAFT_NGRAM_MAX 8u    /* tokens of an n-gram (sched/draft.h) */
#define DRAFT_WINDOW   65536u /* tokens of a text that are indexed: 1 MiB */
#define DRAFT_PEERS_MAX  8u     /* peers whose ended texts are kept */
#define DRAFT_SHARED_MAX 65536u /* tokens of one peer's texts: 1.3 MiB */
#define BODY_HERE_MAX  KIB(64) /* of JSON that the loop parses itself: 3 ms at worst */
#define TEXT_QUEUE_MAX 512u /* pieces of work for the text thread */
#define VOC_RETRY_MS   1000u  /* from a vocabulary that did not open to the next try */
#define TEXT_HERE_MAX  KIB(1) /* text that the loop tokenises itself: some 30 us */
#define TEXT_HERE_MESSAGES 16u /* of a conversation that it renders itself */
#define TEXT_HERE_STEPS 10000u /* of that rendering; a step is some 0.1 us (five million took 0.6 s) */

/* --- jobs and store --- */
#define JOBS_QUEUED_MAX    64u
#define JOBS_LISTED_MAX    1000u
/* Of a job: -MAX to MAX, 0 is "normal"; words are two of them. */
#define JOB_PRIORITY_MAX   100
#define JOB_PRIORITY_LOW   (-50)
#define JOB_PRIORITY_HIGH  50
#define JOB_ATTEMPTS_MAX   3u
#define JOB_STALL_MS       120000u /* worker without progress is killed */
#define JOB_RETRY_MS       1000u /* until a record that found no room is tried again */
#define JOB_CANCEL_MS      2000u   /* from cancel frame to SIGKILL */
/* Work of conversions that did not end (convert/work.h), in one folder: what is
 * older goes, then the oldest beyond these. */
#define WORK_AGE_S         (7u * 24u * 3600u)
#define WORKS_MAX          8u
#define WORK_BYTES_MAX     ((uint64_t)64 << 30)
#define WORK_RECORDS_MAX   4096u   /* of one: files and marks in them */
#define WORK_JOURNAL_MAX   MIB(2)
#define WORK_LINE_MAX      512u
#define WORK_LOCK_MS       5000u /* waits for one who is about to end */
#define WORK_MARK_MS       200u  /* between marks; a mark is one sync */
#define STORE_QUEUE_MAX    4096u   /* requests waiting for the store thread */
#define STORE_TEXT_MAX       MIB(8)  /* one JSON text of a record */
#define RESIDENCY_KEPT_MAX   8u      /* reports of a bundle and a kind */
#define RESIDENCY_OPS_MAX    8192u   /* kinds of operations of one report */
#define CONVERT_CPU_S      3600u                 /* RLIMIT_CPU of a worker */
#define CONVERT_DATA_BYTES ((uint64_t)2 << 30) /* RLIMIT_DATA: the quality
                                                  gate runs the model */
/* Texts and questions of `anectl eval`. */
#define EVAL_FILE_MAX    MIB(64) /* ARC is 2 MB, wikitext's test set 1.3 MB */
#define EVAL_LINE_MAX    TEXT_BYTES_MAX /* one text, one question */
#define EVAL_CHOICES_MAX 26u     /* of a question: a letter each */
#define EVAL_WINDOW_MAX  MODEL_CONTEXT_MAX
/* Of `anectl bench`. */
#define BENCH_ROUNDS_MAX  1000u
#define BENCH_STREAMS_MAX PROMPTS_MAX /* they are one request */
/* The page of `anectl report`. */
#define REPORT_BYTES_MAX MIB(16) /* 512 layers x 512 rows of cells, 60 bytes \
                                  */
#define REPORT_ROWS_MAX    512u  /* operations of a layer, tensors */
#define REPORT_COLUMNS_MAX (2u * MODEL_LAYERS_MAX) /* layers and head slices \
                                                    */
#define QUALITY_TEXT_MAX                                                         \
    KIB(60)                         /* of a report: it goes in one frame of a    \
                                       worker; layers and positions are left out \
                                       where there is no room */
#define QUALITY_BYTES_MAX  MIB(768) /* of a gate's own arrays: fewer positions
                                      are measured where they are larger */
