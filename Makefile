# make book   the rendered book, from nothing: environment, images, features, notebooks, pages
# make test   every test, in build/test; neither disturbs the other's products
# make test-browser   after make test: its pages and a lab in a real browser (Debian: chromium chromium-driver npm)
# make lab    JupyterLab on student copies of the labs, in my_labs/ (work in it is kept; make clean leaves it)
#             LAB_OPTIONS goes to JupyterLab, such as LAB_OPTIONS="--no-browser --port 9000"; as root it needs --allow-root
PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
BIN := $(abspath $(VENV))/bin
STAMP := $(VENV)/.installed
TEST := $(abspath build/test)
# the smoke pipeline lives in a folder of its own; kernels inherit these
TESTENV := PHOEBI_HOME=$(TEST) PHOEBI_QUIET=1

.PHONY: book test lint unit smoke nbval site rehearsal test-browser lab clean

$(STAMP): requirements.txt constraints.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.txt -c constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

book: $(STAMP)
	$(BIN)/phoebi data simulate sim:default
	$(BIN)/phoebi data simulate sim:default:pure
	$(BIN)/phoebi data simulate sim:default:shared
	$(BIN)/phoebi data simulate sim:default:four
	$(BIN)/phoebi embed sim:default
	$(BIN)/phoebi run --profile default --out book/executed --jobs $(JOBS)
	$(BIN)/phoebi book

test: lint unit smoke nbval site rehearsal

lint: $(STAMP)
	$(BIN)/ruff check .

unit: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/test_*.py -q -n 2 --durations=10

smoke: $(STAMP)
	$(TESTENV) $(BIN)/phoebi data simulate sim:smoke
	$(TESTENV) $(BIN)/phoebi data simulate sim:smoke:pure
	$(TESTENV) $(BIN)/phoebi data simulate sim:smoke:four
	$(TESTENV) $(BIN)/phoebi embed sim:smoke
	$(TESTENV) $(BIN)/phoebi run --profile smoke --out build/test/site/book/executed --jobs $(JOBS)

# the labs are left out: their solutions are run by unit tests, and by smoke, which stops where a check refuses one
nbval: smoke
	rm -rf build/test/nbval
	$(TESTENV) PHOEBI_RESULTS=$(TEST)/nbval OMP_NUM_THREADS=1 $(BIN)/python -m pytest -p tests.nbval_hooks --nbval-lax -q -n 2 --dist loadfile \
	    --ignore-glob='*/lab_*' \
	    --nbval-kernel-startup-timeout 120 build/test/site/book/executed

site: smoke
	$(TESTENV) $(BIN)/python -m pytest tests/site -q

rehearsal: smoke
	$(TESTENV) $(BIN)/python -m pytest tests/rehearsal -q

test-browser: $(STAMP)
	$(TESTENV) $(BIN)/python -m pytest tests/browser -q -n 2 --dist loadfile

lab: $(STAMP)
	$(BIN)/phoebi labs --student my_labs --keep
	$(BIN)/phoebi data simulate sim:smoke
	$(BIN)/phoebi embed sim:smoke
	$(BIN)/jupyter lab --ServerApp.root_dir="$(CURDIR)" --LabApp.default_url=/lab/tree/my_labs/lab_1_front_end.ipynb \
	    $(LAB_OPTIONS)

clean:
	rm -rf build _build book/executed results
