"""Command lines that must be refused: one row each, `(command line, exit code, a part of the message)`.

`@/` is the folder of materials in conftest.py. A command in capitals stands for the line in `COMMANDS`, which works by
itself.
"""

COMMANDS = {
    "DEMO": "demo",
    "INSPECT": "inspect @/model",
    "AUDIT": "audit @/model --texts @/corpus.jsonl",
    "INDEX": "index @/model @/corpus.jsonl store",
    "SEARCH": "search @/index w1",
    "EVALUATE": "evaluate @/model --benchmark @/beir --no-cache",
    "SWEEP": "sweep @/model --benchmark @/beir --no-cache",
    "TUNE": "tune @/model --benchmark @/beir --no-cache",
    "SAVE": "save @/model fair",
    "REPORT": "report @/corpus.jsonl",
    "REPRODUCE": "reproduce fineweb-posq --model @/model --no-cache",
    "CACHE": "cache",
    "DELETE": "delete @/index --id d1",
    "VERIFY": "verify @/index",
    "SERVE": "serve @/model --port 0",
}

HUGE = "9" * 20
LONG = "x" * 5000

# Options that take a whole number, with the smallest; each is tried with what is too small and what is none.
WHOLE = [
    ("DEMO", "--documents", 3), ("DEMO", "--tokens", 512), ("DEMO", "--seed", 0),
    ("AUDIT", "--sample", 1), ("AUDIT", "--segments", 2), ("AUDIT", "--versions", 1), ("AUDIT", "--batch-size", 1),
    ("AUDIT", "--seed", 0),
    ("INDEX", "--batch-tokens", 1), ("INDEX", "--shard-documents", 1), ("INDEX", "--shard-tokens", 1),
    ("INDEX", "--chunk-tokens", 16), ("INDEX --chunk-tokens 32", "--overlap", 0),
    ("INDEX", "--max-chars", 1), ("INDEX --engine ray", "--workers", 1),
    ("SEARCH", "-k", 1),
    ("EVALUATE", "--window", 1), ("EVALUATE", "--cut", 1), ("EVALUATE", "--limit", 1), ("EVALUATE", "--batch-size", 1),
    ("EVALUATE", "--seed", 0), ("EVALUATE", "--resamples", 0),
    ("SWEEP", "--limit", 1), ("SWEEP", "--batch-size", 1), ("SWEEP", "--seed", 0), ("SWEEP", "--resamples", 0),
    ("TUNE", "--limit", 1), ("TUNE", "--batch-size", 1), ("TUNE", "--seed", 0), ("TUNE", "--resamples", 0),
    ("REPRODUCE", "--batch-size", 1), ("REPRODUCE", "--seed", 0), ("REPRODUCE", "--resamples", 0),
    ("CACHE", "--older-than", 0),
    ("SERVE", "--max-texts", 1), ("SERVE", "--max-bytes", 1000), ("SERVE", "--queue-tokens", 1), ("SERVE", "--batch-tokens", 1),
    ("serve @/model", "--port", 0),
]  # fmt: skip
# Options that take a number between 0 and 1.
SHARES = [("INDEX", "--max-rejects"), ("EVALUATE", "--segment-threshold"), ("TUNE", "--development")]
CALIBRATED = ["DEMO", "INSPECT", "AUDIT", "INDEX", "EVALUATE", "SAVE", "SERVE"]

CASES: list[tuple[object, ...]] = [
    *[
        (f"{command} {option} {value}", 2, f"{option} must be a whole number")
        for command, option, least in WHOLE
        for value in (least - 1, "some", "1.5", "nan", HUGE)
    ],
    *[
        (f"{command} {option} {value}", 2, f"{option} must be a number between 0 and 1")
        for command, option in SHARES
        for value in ("-0.1", "5", "1.0001", "nan", "inf", "half", "''")
    ],
    *[
        (f"{command} --calibration {setting}", 2, part)
        for command in CALIBRATED
        for setting, part in (
            ("softer", "--calibration: variant must be one of"),
            ("soft,strength=2", "strength must lie in [0, 1], not 2.0"),
            ("soft,partition=odd", "partition must be one of paper, even, not 'odd'"),
            ("soft,strength=nan", "strength must lie in [0, 1]"),
            ("soft,basket_size=0", "basket_size must be at least 1"),
            ("soft,colour=red", "Cannot read 'colour=red'"),
            ("soft,strength=1,strength=1", "sets strength twice"),
            ("''", "--calibration: variant must be one of"),
        )
    ],
    # The root
    ("nothing", 2, "No such command 'nothing'. See evenspan --help."),
    ("--nothing", 2, "No such option: --nothing"),
    ("inspects", 2, "No such command 'inspects'"),
    ("adit", 2, "Did you mean 'audit', 'advise'? See evenspan --help."),
    ("'' ''", 2, "No such command"),
    ("--version=5", 2, "--version"),
    (LONG, 2, "…"),
    # Usage, of every command
    *[(f"{command} --nothing", 2, "No such option: --nothing") for command in COMMANDS],
    *[(f"{command} --json=yes", 2, "does not take a value") for command in COMMANDS],
    *[(f"{command} one two three four", 2, "unexpected extra argument") for command in COMMANDS if command != "REPORT"],
    ("inspect", 2, "Missing argument 'MODEL'"),
    ("audit", 2, "Missing argument 'MODEL'"),
    ("audit @/model", 2, "Missing option '--texts'. See evenspan audit --help."),
    ("audit @/model --texts", 2, "requires an argument"),
    ("index", 2, "Missing argument 'MODEL'"),
    ("index @/model", 2, "Missing argument 'SOURCE'"),
    ("index @/model @/corpus.jsonl", 2, "Missing argument 'STORE'"),
    ("search", 2, "Missing argument 'STORE'"),
    ("search @/index", 2, "Missing argument 'QUESTION'"),
    *[
        (f"{command} @/model{given}", 2, part)
        for command in ("evaluate", "sweep", "tune")
        for given, part in (
            ("", "Give either --benchmark or --texts."),
            (" --benchmark @/beir --texts @/corpus.jsonl", "Give either --benchmark or --texts."),
            (" --benchmark @/beir --sample 5", "--sample applies only to --texts"),
            (" --texts nowhere --no-cache", "There is no file or folder 'nowhere'"),
            (" --texts @/no_text.jsonl --no-cache", "has no field 'text'. Choose one with --field"),
            (" --texts @/corpus.jsonl --option left_out=1.5 --no-cache", "left_out must be at least 0 and less than 1"),
            (" --texts @/corpus.jsonl --option sentences=2 --no-cache", "sentences must be at least 3"),
        )
    ],
    *[
        (f"{command} --calibration {file}", 2, part)
        for command in CALIBRATED
        for file, part in (
            ("nowhere.json", "there is no file nowhere.json"),
            ("@/object.json", "was not written by `evenspan tune`"),
            ("@/deep.json", "was not written by `evenspan tune`"),
        )
    ],
    ("report", 2, "Missing argument"),
    ("reproduce", 2, "Missing argument 'TABLE'"),
    ("reproduce posir", 2, "Missing option '--model'"),
    ("evaluate --benchmark @/beir", 2, "Missing argument 'MODEL'"),
    # A value that is another option, nothing, or no text
    ("AUDIT --output --json", 2, "--output needs a value; '--json' looks like an option"),
    ("EVALUATE --output --json", 2, "--output needs a value"),
    ("EVALUATE --baseline --json", 2, "--baseline needs a value"),
    ("SWEEP --grid --detached", 2, "--grid needs a value"),
    ("TUNE --save --json", 2, "--save needs a value"),
    ("INDEX --rejects --json", 2, "--rejects needs a value"),
    ("DEMO --plot --json", 2, "--plot needs a value"),
    ("inspect ''", 2, "MODEL must not be empty"),
    ("inspect ' '", 2, "MODEL must not be empty"),
    ("AUDIT --field ''", 2, "--field must not be empty"),
    ("AUDIT --output ''", 2, "--output must not be empty"),
    ("AUDIT --device ''", 2, "--device must not be empty"),
    ("audit @/model --texts ''", 2, "--texts must not be empty"),
    ("index @/model '' store", 2, "SOURCE must not be empty"),
    ("index @/model @/corpus.jsonl ''", 2, "STORE must not be empty"),
    ("INDEX --id ''", 2, "--id must not be empty"),
    ("INDEX --table ''", 2, "--table must not be empty"),
    ("search '' w1", 2, "STORE must not be empty"),
    ("search @/index ''", 2, "QUESTION must not be empty"),
    ("search @/index '  '", 2, "QUESTION must not be empty"),
    ("SEARCH --where ''", 2, "--where must not be empty"),
    ("evaluate @/model --benchmark ''", 2, "--benchmark must not be empty"),
    ("SWEEP --grid ''", 2, "--grid must not be empty"),
    ("TUNE --save ''", 2, "--save must not be empty"),
    ("report ''", 2, "must not be empty"),
    ("REPRODUCE --paper-model ''", 2, "--paper-model must not be empty"),
    ("cache --cache ''", 2, "--cache must not be empty"),
    ("search @/index w\udcff", 2, "QUESTION must be valid UTF-8"),
    ("AUDIT --document-prompt w\udcff", 2, "--document-prompt must be valid UTF-8"),
    ("EVALUATE --query-prompt \ud800", 2, "--query-prompt must be valid UTF-8"),
    ("INDEX --query-prompt \ud800", 2, "--query-prompt must be valid UTF-8"),
    ("SEARCH --where 'lang = \udcff'", 2, "--where must be valid UTF-8"),
    ("inspect model\udcff", 2, "MODEL must be valid UTF-8"),
    ("INDEX --field \udcff", 2, "--field must be valid UTF-8"),
    ("inspect 'a\0b'", 2, "An argument contains a NUL character"),
    ("AUDIT --output 'a\0b'", 2, "An argument contains a NUL character"),
    ("index @/model 'a\0b' store", 2, "An argument contains a NUL character"),
    ("search @/index 'a\0b'", 2, "An argument contains a NUL character"),
    ("EVALUATE --cache 'a\0b'", 2, "An argument contains a NUL character"),
    ("SWEEP --grid 'a\0b'", 2, "An argument contains a NUL character"),
    ("report 'a\0b'", 2, "An argument contains a NUL character"),
    # Names that are none
    ("DEMO --pooling max", 2, "--pooling must be cls, last or mean, not 'max'"),
    ("DEMO --pooling ''", 2, "--pooling must be cls, last or mean"),
    ("AUDIT --format xml", 2, "--format must be jsonl, csv, tsv, parquet or text, not 'xml'"),
    ("INDEX --format xml", 2, "--format must be jsonl"),
    ("INDEX --engine spark", 2, "--engine must be local or ray"),
    ("tune @/model --benchmark @/beir --objective best", 2, "--objective must be balanced, hm, ndcg or worst, not 'best'"),
    ("evaluate @/model --benchmark @/beir --chunk-at words", 2, "--chunk-at must be tokens or sentences, not 'words'"),
    ("evaluate @/model --benchmark @/beir --k1 -1", 2, "--k1 must be a number between 0 and 1,000, not '-1'"),
    ("evaluate @/model --benchmark @/beir --b 2", 2, "--b must be a number between 0 and 1"),
    ("evaluate @/model --benchmark @/beir --sort price", 2, "--sort must be vectors, bytes, HM, PSI"),
    ("EVALUATE --window 8 --overlap 8 --baseline chunks-max", 2, "--overlap must be less than --window, which is 8, not 8"),
    ("EVALUATE --baseline bm25 --stemmer klingon", 2, "Unknown stemmer 'klingon'"),
    ("reproduce squad --model @/model", 2, "TABLE must be fineweb-posq, posir or nanobeir, not 'squad'"),
    ("reproduce posir --model @/model --setting x-y", 2, "--setting must be x-x or x-en"),
    ("reproduce posir --model @/model --language english", 2, "--language: unknown language 'english'"),
    ("EVALUATE --baseline nothing", 2, "Unknown baseline 'nothing'"),
    (f"EVALUATE --baseline {LONG}", 2, "Unknown baseline"),
    ("AUDIT --device nothing", 2, "--device nothing: PyTorch cannot compute there"),
    ("AUDIT --device cuda:99", 2, "--device cuda:99: PyTorch cannot compute there"),
    ("AUDIT --device meta", 2, "--device meta: PyTorch cannot compute there"),
    ("INDEX --device cuda:99", 2, "--device cuda:99: PyTorch cannot compute there"),
    ("SEARCH --device cuda:99", 2, "--device cuda:99: PyTorch cannot compute there"),
    ("EVALUATE --device cuda:-5", 2, "--device cuda:-5: PyTorch cannot compute there"),
    ("SWEEP --device cuda:99", 2, "--device cuda:99"),
    ("REPRODUCE --path @/folder --device cuda:99", 2, "--device cuda:99"),
    # Options that exclude each other, or that belong to something else
    *[
        (f"{command} --no-cache --cache somewhere", 2, "--cache and --no-cache cannot be combined")
        for command in ("EVALUATE", "SWEEP", "TUNE", "REPRODUCE")
    ],
    ("INDEX --workers 2", 2, "--address and --workers are for --engine ray"),
    ("INDEX --address auto", 2, "--address and --workers are for --engine ray"),
    ("INDEX --table mine", 2, "--table is for PostgreSQL"),
    ("SEARCH --table mine", 2, "--table is for PostgreSQL"),
    ("REPRODUCE --language deu-Latn", 2, "--language and --setting are for the table posir"),
    ("REPRODUCE --setting x-x", 2, "--language and --setting are for the table posir"),
    ("TUNE --resamples 99", 2, "--resamples must be at least 100 to tell a gain from noise"),
    ("INDEX --field id", 2, "text and id cannot both be read from the field 'id'"),
    ("AUDIT --sample 0 --sample 0", 2, "--sample must be a whole number"),
    ("EVALUATE --limit 3 --limit 0", 2, "--limit must be a whole number"),
    ("CACHE --clear --older-than some", 2, "--older-than must be a whole number"),
    ("CACHE --cache nowhere", 2, "--cache: there is no folder nowhere"),
    ("CACHE --cache @/corpus.jsonl", 2, "--cache: there is no folder"),
    ("CACHE --cache nowhere --clear --yes", 2, "--cache: there is no folder nowhere"),
    ("CACHE --calibration soft", 2, "No such option"),
    ("CACHE --yes=1", 2, "does not take a value"),
    # Outputs that cannot be written
    ("AUDIT --output @/corpus.jsonl", 2, "corpus.jsonl is not a folder"),
    ("AUDIT -o @/corpus.jsonl/below", 2, "corpus.jsonl is not a folder"),
    (f"AUDIT -o {'n' * 300}", 2, "--output: cannot write to"),
    ("EVALUATE --output @/corpus.jsonl", 2, "corpus.jsonl is not a folder"),
    ("EVALUATE --output @/corpus.jsonl/a/b", 2, "corpus.jsonl is not a folder"),
    ("SWEEP --output @/corpus.jsonl", 2, "corpus.jsonl is not a folder"),
    ("TUNE --output @/corpus.jsonl", 2, "corpus.jsonl is not a folder"),
    ("TUNE --save @/corpus.jsonl", 2, "--save: cannot write to"),
    ("REPRODUCE --output @/corpus.jsonl", 2, "corpus.jsonl is not a folder"),
    ("INDEX --rejects @/folder", 2, "--rejects: "),
    ("INDEX --rejects @/corpus.jsonl/rejects", 2, "corpus.jsonl is not a folder"),
    ("index @/model @/corpus.jsonl @/empty.txt", 2, "empty.txt is not a folder"),
    ("index @/model @/corpus.jsonl parquet:@/empty.txt", 2, "empty.txt is not a folder"),
    ("index @/model @/corpus.jsonl lance:@/empty.txt/below", 2, "empty.txt is not a folder"),
    ("DEMO --plot @/folder", 2, "is a folder: give a file, such as"),
    ("DEMO --plot nowhere/plot.png", 2, "--plot: there is no folder nowhere"),
    ("DEMO --plot @/corpus.jsonl/plot.png", 2, "corpus.jsonl is not a folder"),
    ("DEMO --plot plot.docx", 2, "must end in .png, .svg, .pdf"),
    ("DEMO --plot plot", 2, "must end in .png, .svg, .pdf"),
    ("REPORT -o @/folder", 2, "is a folder: give a file, such as"),
    ("REPORT -o @/corpus.jsonl", 2, "exists and is not an HTML page"),
    ("REPORT -o @/corpus.jsonl/page.html", 2, "corpus.jsonl is a file where a folder is needed"),
    *[
        (f"{command} @/model --benchmark @/beir --cache @/corpus.jsonl", 2, "--cache, or keep them in memory with --no-cache")
        for command in ("evaluate", "sweep", "tune")
    ],
    ("evaluate @/model --benchmark @/beir --cache /proc/cache", 2, "--cache, or keep them in memory with --no-cache"),
    ("evaluate @/model --benchmark @/beir --no-cache --output /proc/results", 2, "--output: cannot write to /proc/results"),
    ("reproduce posir --model @/model --cache @/corpus.jsonl", 2, "with --cache, or keep them in memory with --no-cache"),
    # Files and folders that are not there, or not what they should be
    ("audit @/model --texts nowhere.jsonl", 2, "There is no file or folder 'nowhere.jsonl'"),
    ("audit @/model --texts '*.jsonl'", 2, "There is no file or folder '*.jsonl'"),
    ("audit @/model --texts @/folder", 2, "contains no readable file"),
    ("audit @/model --texts @/unnamed", 2, "does not show its format: add --format"),
    ("audit @/model --texts -", 2, "There are no documents in '-'"),
    *[(f"audit @/model --texts @/empty.{kind}", 2, "empty.") for kind in ("jsonl", "txt", "csv", "parquet", "jsonl.gz")],
    *[
        (f"audit @/model --texts @/garbage.{kind}", 2, "garbage.")
        for kind in ("jsonl", "txt", "csv", "parquet", "jsonl.gz", "jsonl.zst", "bin", "gz")
    ],
    ("audit @/model --texts @/cut.jsonl.gz", 2, "cut.jsonl.gz"),
    ("audit @/model --texts @/latin1.txt", 2, "invalid UTF-8"),
    ("audit @/model --texts @/latin1.jsonl", 2, "invalid UTF-8"),
    ("audit @/model --texts @/utf16.jsonl", 2, "There are no documents in"),
    ("audit @/model --texts @/numbers.jsonl", 2, "There are no documents in"),
    ("audit @/model --texts @/no_text.jsonl", 2, "has no field 'text'. Choose one with --field: 'id', 'body'"),
    ("AUDIT --field nothing", 2, "has no field 'nothing'"),
    ("audit @/model --texts hf:", 2, "does not name a dataset"),
    ("audit @/model --texts @/corpus.jsonl --format parquet", 2, "is not a Parquet file"),
    ("index @/model nowhere.jsonl store", 2, "There is no file or folder 'nowhere.jsonl'"),
    ("index @/model @/folder store", 2, "contains no readable file"),
    ("index @/model @/unnamed store", 2, "add --format"),
    ("index @/model hf: store", 2, "does not name a dataset"),
    *[
        (f"index @/model @/{name} store", 2, name.partition(".")[0])
        for name in ("empty.jsonl", "garbage.parquet", "garbage.jsonl.gz", "cut.jsonl.gz", "no_id.jsonl", "no_text.jsonl")
    ],
    ("INDEX --metadata year:integer", 2, "Unknown column type 'integer'"),
    ("index @/model @/corpus.jsonl redis://localhost", 2, "Unsupported store redis://"),
    ("index @/model @/corpus.jsonl https://user:secret@host/x", 2, "Unsupported store https://"),
    ("index @/model @/corpus.jsonl postgresql://127.0.0.1:1/none", 2, "127.0.0.1"),
    ("index @/model @/corpus.jsonl postgresql:/localhost/x", 2, "This is not a PostgreSQL address"),
    ("index @/model @/corpus.jsonl 'host=localhost password=secret'", 2, "This is not a PostgreSQL address"),
    ("index @/model @/corpus.jsonl postgresql://u:sec@ret@localhost/x", 2, "This is not a PostgreSQL address"),
    ("search nowhere w1", 2, "No index found in"),
    ("delete @/index", 2, "Give either ids or a filter"),
    ("delete @/index --id d1 --where 'year = 1'", 2, "Give either ids or a filter"),
    ("delete @/index --where 'nothing = 1'", 2, "unknown column 'nothing'. Available columns:"),
    ("delete nowhere --id d1", 2, "No index found in"),
    ("delete @/index --id ''", 2, "must not be empty"),
    ("delete @/index_garbage --id d1", 2, "index_garbage"),
    ("delete", 2, "Missing argument 'STORE'"),
    ("delete '' --id d1", 2, "STORE must not be empty"),
    ("verify nowhere", 2, "No index found in"),
    ("verify", 2, "Missing argument 'STORE'"),
    ("verify ''", 2, "STORE must not be empty"),
    ("verify @/index_garbage", 2, "index_garbage"),
    ("verify @/index_empty", 2, "index_empty"),
    ("verify @/folder", 2, "No index found in"),
    ("verify redis://u:secret@x", 2, "Unsupported store redis://"),
    ("verify @/index --table x", 2, "--table is for PostgreSQL"),
    ("search @/folder w1", 2, "No index found in"),
    ("search @/corpus.jsonl w1", 2, "corpus.jsonl"),
    ("search parquet:nowhere w1", 2, "No index found in"),
    ("search redis://localhost w1", 2, "Unsupported store redis://"),
    ("search lance:@/index w1", 2, "holds an index of another kind"),
    ("search @/index_garbage w1", 2, "index_garbage"),
    ("search @/index_empty w1", 2, "index_empty"),
    ("search @/index_cut w1", 2, "index_cut"),
    ("INDEX --chunk-tokens 100000", 2, "--chunk-tokens must be between 16 and"),
    ("INDEX --overlap 8", 2, "--overlap is for chunks: give --chunk-tokens, or leave out overlap"),
    ("INDEX --chunk-tokens 32 --overlap 32", 2, "--overlap must be at least 0 and less than the 32 tokens of a chunk, not 32"),
    ("INDEX --full-text --no-text", 2, "needs an index that stores texts"),
    ("INDEX --store-options hsnw", 2, "index must be one of auto"),
    ("INDEX --store-options m", 2, "index must be one of auto"),
    ("INDEX --store-options hnsw,m=1", 2, "m must be a whole number from 2 to 100, not 1"),
    ("INDEX --store-options hnsw,m", 2, "Cannot read 'm' in the options 'hnsw,m'"),
    ("INDEX --store-options ivf-flat,m=8", 2, "m is not an option of the index 'ivf-flat'"),
    ("INDEX --store-options ''", 2, "--store-options must not be empty"),
    ("INDEX --dry-run --engine ray", 2, "A dry run measures this machine: leave out --engine ray"),
    ("SEARCH --hybrid", 2, "is a Parquet index, which has no full-text search"),
    ("SEARCH --where '1=1'", 2, "Cannot read the filter"),
    ("SEARCH --where 'year >'", 2, "filter"),
    ("SEARCH --where 'colour = 1'", 2, "colour"),
    ("SEARCH --where \"year = 'x'\"", 2, "year"),
    ("SEARCH --where 'year = 1; drop table x'", 2, "filter"),
    (f"SEARCH --where '{'(' * 3000}'", 2, "filter"),
    ("SEARCH --model nowhere/at/all", 2, "'nowhere/at/all' is neither a model folder"),
    # Benchmarks
    *[
        (f"{command} @/model --no-cache --benchmark nowhere", 2, "Unknown benchmark 'nowhere'")
        for command in ("evaluate", "sweep", "tune")
    ],
    ("EVALUATE --option tiny", 2, "--option: write it as NAME=VALUE"),
    ("EVALUATE --option =5", 2, "--option: write it as NAME=VALUE"),
    ("SWEEP --option tiny", 2, "--option: write it as NAME=VALUE"),
    ("TUNE --option tiny", 2, "--option: write it as NAME=VALUE"),
    ("EVALUATE --option colour=red", 2, "has no option 'colour'"),
    ("SWEEP --option colour=red", 2, "has no option 'colour'"),
    *[
        (f"evaluate @/model --no-cache --benchmark generated --option {option}", 2, part)
        for option, part in (
            ("documents=2", "documents must be at least 3"),
            ("documents=some", "does not accept one of the values documents=some"),
            ("tokens=5", "tokens must be between"),
            ("tokens=true", "tokens must be between"),
            ("mode=double", "mode must be"),
            ("documents=3000000", "not enough names"),
            ("title=true", "has no option 'title'"),
        )
    ],
    ("evaluate @/model --no-cache --benchmark generated --title", 2, "has no option 'title'"),
    ("evaluate @/model --no-cache --benchmark posir --option language=english", 2, "PosIR has no language 'english'"),
    ("evaluate @/model --no-cache --benchmark fineweb-posq --option path=nowhere", 2, "nowhere is not a folder"),
    ("evaluate @/model --no-cache --benchmark squad-posq --option path=@/corpus.jsonl", 2, "is not a folder"),
    *[
        (f"evaluate @/model --no-cache --benchmark @/beir_{name}", 2, part)
        for name, part in (
            ("no_corpus", "corpus.jsonl"), ("no_queries", "queries.jsonl"), ("no_qrels", "qrels"),
            ("empty_corpus", "corpus"), ("empty_queries", "queries.jsonl"), ("no_json", "corpus.jsonl"),
            ("no_object", "corpus.jsonl"), ("no_id", "corpus.jsonl"), ("twice", "appears a second time"),
            ("bad_qrels", "tsv"), ("garbage_corpus", "corpus.jsonl"), ("garbage_queries", "queries.jsonl"),
            ("garbage_qrels", "tsv"), ("number_text", "corpus.jsonl"),
        )
    ],
    *[
        (f"sweep @/model --no-cache --benchmark @/{name}", 2, part)
        for name, part in (
            ("empty.json", "not in SQuAD format"), ("list.json", "not in SQuAD format"),
            ("null.json", "not in SQuAD format"), ("object.json", "not in SQuAD format"),
            ("squad_no_paragraphs.json", "has no list of 'paragraphs'"), ("squad_strings.json", "'paragraphs'"),
            ("squad_bad_span.json", "lies outside its context"), ("squad_twice.json", "appears a second time"),
            ("squad_no_answers.json", "no question with an answer"), ("folder", "corpus.jsonl"),
            ("squad_articles.json", "not in SQuAD format"), ("corpus.jsonl", "not in SQuAD format"),
        )
    ],
    *[
        (f"tune @/model --no-cache --benchmark @/{name}", 2, name)
        for name in (
            "squad_no_qas.json", "squad_no_context.json", "squad_no_start.json", "squad_no_id.json", "squad_null.json",
            "squad_text_context.json", "garbage.json", "deep.json", "garbage.bin",
        )
    ],
    ("EVALUATE --baseline window-average --window 5000", 2, "--window must be between 1 and"),
    ("EVALUATE --calibration soft,layers=9", 2, "asks for more layers"),
    ("EVALUATE --calibration soft,layers=77+", 2, "Layer 77 does not exist"),
    ("evaluate @/causal_mean --benchmark @/beir --no-cache", 2, "cannot be calibrated"),
    # Grids
    *[
        (f"{command} --grid @/grid.{name}", 2, f"grid.{name}")
        for command, name in (
            ("SWEEP", "bin"), ("TUNE", "latin1"), ("SWEEP", "utf16"), ("SWEEP", "empty"), ("TUNE", "comments"),
            ("SWEEP", "bad"), ("SWEEP", "broken.json"), ("TUNE", "object.json"), ("SWEEP", "numbers.json"),
            ("SWEEP", "unknown.json"), ("TUNE", "wrong.json"), ("SWEEP", "nested.json"), ("SWEEP", "null.json"),
        )
    ],
    ("SWEEP --grid @/deep.json", 2, "deep.json"),
    ("SWEEP --grid nowhere", 2, "Unknown grid 'nowhere'"),
    ("TUNE --grid @/folder", 2, "Unknown grid"),
    (f"SWEEP --grid {LONG}", 2, "too long"),
    # Saved models
    ("save @/model", 2, "Missing argument 'FOLDER'"),
    ("save ./nowhere fair", 2, "'./nowhere' is neither a model folder"),
    ("save @/model @/corpus.jsonl", 2, "corpus.jsonl is not a folder"),
    ("save @/model @/model", 2, "already contains a model: choose another folder, or give --overwrite"),
    ("save @/model @/beir --overwrite", 2, "contains other files: choose another folder"),
    ("save @/causal_mean fair", 2, "cannot be calibrated"),
    ("SAVE --default-task query", 2, "--default-task must be document or none"),
    ("SAVE --calibration soft,layers=77+", 2, "Layer 77 does not exist"),
    ("SAVE --audit nowhere.json", 2, "nowhere.json: No such file"),
    ("SAVE --audit @/folder", 2, "folder: Is a directory"),
    *[
        (f"SAVE --audit @/{name}", 2, f"{name} as an audit")
        for name in ("garbage.json", "empty.json", "list.json", "object.json", "deep.json", "audit_broken.json")
    ],
    # Reports
    ("report nowhere", 2, "There is no file or folder 'nowhere'"),
    ("report @/folder", 2, "There is nothing to report in"),
    ("report @/folder nowhere", 2, "There is no file or folder 'nowhere'"),
    *[
        (f"report @/{name}", 2, "There is nothing to report in")
        for name in (
            "empty.json", "list.json", "null.json", "number.json", "string.json", "object.json", "deep.json",
            "audit_broken.json", "corpus.jsonl",
        )
    ],
    *[
        (f"report @/{name}", 2, "There is nothing to report in")
        for name in ("garbage.json", "garbage.bin", "result_broken.json")
    ],
    # The paper's tables
    ("REPRODUCE --path nowhere", 2, "--path: there is no folder nowhere"),
    ("REPRODUCE --path @/corpus.jsonl", 2, "--path: there is no folder"),
    ("REPRODUCE --path @/folder", 2, "is not a copy of NovaSearch/FineWeb-PosQ"),
    ("REPRODUCE --path @/folder --paper-model gpt", 2, "has no model 'gpt'"),
    # Models
    ("inspect ./nowhere", 2, "'./nowhere' is neither a model folder"),
    ("inspect /nowhere/at/all", 2, "is neither a model folder"),
    (f"inspect ./{LONG}", 2, "…"),
    ("inspect a/b/c", 2, "'a/b/c' is neither a model folder"),
    ("inspect nobody/nothing", 2, "Cannot load 'nobody/nothing'"),
    ("inspect nowhere", 2, "nowhere"),
    ("inspect miniature:first", 2, "Unknown miniature 'first'. Available: 'cls', 'last', 'mean'"),
    ("inspect miniature:", 2, "Unknown miniature"),
    ("inspect 'bad name'", 2, "bad name"),
    ("inspect 'sémantique/modèle'", 2, "sémantique"),
    ("inspect @/corpus.jsonl", 2, "corpus.jsonl"),
    ("inspect @/folder", 2, "folder"),
    ("audit ./nowhere --texts @/corpus.jsonl", 2, "'./nowhere' is neither a model folder"),
    ("index ./nowhere @/corpus.jsonl store", 2, "'./nowhere' is neither a model folder"),
    ("evaluate ./nowhere --benchmark @/beir --no-cache", 2, "'./nowhere' is neither a model folder"),
    ("sweep ./nowhere --benchmark @/beir --no-cache", 2, "'./nowhere' is neither a model folder"),
    ("tune ./nowhere --benchmark @/beir --no-cache", 2, "'./nowhere' is neither a model folder"),
    ("reproduce posir --model ./nowhere --no-cache", 2, "'./nowhere' is neither a model folder"),
    ("inspect @/model_other_kind", 2, "is a SparseEncoder"),
    *[
        (f"inspect @/{name}", 2, name)
        for name in (
            "model_no_weights", "model_list_config", "model_no_type", "model_broken_tokenizer", "model_no_tokenizer",
            "model_pickled",
        )
    ],
    *[
        (f"inspect @/{name}", 2, name)
        for name in (
            "model_cut_weights", "model_empty_weights", "model_garbage_weights", "model_broken_config",
            "model_empty_config", "model_garbage_config", "model_unknown_type",
            "model_no_path", "model_no_class", "model_object_modules", "model_empty_modules", "model_broken_modules",
            "model_foreign_class", "model_no_pooling", "model_broken_pooling",
            "model_broken_st_config", "calibrated_broken", "calibrated_unknown", "calibrated_empty",
        )
    ],
    # A server
    ("serve", 2, "Missing argument 'MODEL'"),
    ("serve ./nowhere --port 0", 2, "'./nowhere' is neither a model folder"),
    ("serve @/model_garbage_config --port 0", 2, "model_garbage_config"),
    ("serve @/model --port 65536", 2, "--port must be a whole number between 0 and 65,535"),
    ("SERVE --host 0.0.0.0", 2, "--host 0.0.0.0 would be open to other machines: set EVENSPAN_API_KEY"),
    ("SERVE --host ::", 2, "would be open to other machines"),
    ("SERVE --host 192.0.2.1 --no-auth", 2, "Cannot listen at 192.0.2.1"),
    ("SERVE --host no.such.host.invalid --no-auth", 2, "Cannot listen at no.such.host.invalid"),
    ("SERVE --host ''", 2, "--host must not be empty"),
    ("SERVE --default-input-type passage", 2, "--default-input-type must be query or document, not 'passage'"),
    ("SERVE --cors-origin example.com", 2, "--cors-origin: write it as https://example.com"),
    ("SERVE --cors-origin https://example.com/page", 2, "without a path"),
    ("SERVE --patience 0", 2, "--patience must be a number between 0.1 and 3,600"),
    ("SERVE --engine spark", 2, "--engine must be local or ray, not 'spark'"),
    ("SERVE --replicas 2", 2, "--replicas and --address are for --engine ray"),
    ("SERVE --address auto", 2, "--replicas and --address are for --engine ray"),
    ("SERVE --engine ray --replicas 0", 2, "--replicas: the minimum must be at least 1"),
    ("SERVE --engine ray --replicas 4-2", 2, "not above the maximum"),
    ("SERVE --engine ray --replicas many", 2, "--replicas: write 4 or 1-4, not 'many'"),
    ("SERVE --device warp", 2, "--device warp: PyTorch cannot compute there"),
    ("SERVE --calibration soft,layers=9", 2, "layers"),
]  # fmt: skip
