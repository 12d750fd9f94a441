"""Run a notebook's cells in this process.

Starting a kernel and importing everything in it again takes longer than most of our notebooks. Cells run in IPython's
own shell, so they display what a kernel would display.
"""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from typing import Any

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import ExecutionResult, InteractiveShell
from matplotlib_inline.backend_inline import configure_inline_support
from nbformat import NotebookNode
from nbformat.v4 import new_output
from traitlets.config import Config

from fedlib.errors import ConfigError
from fedlib.kinds import shortened
from fedlib.measure import Missing
from workspace.pages.origin import ResultsMissing

JUDGE = "artifact.judge();"
IN_ORDER = (ResultsMissing, Missing)  # if a page lacks these, it ends there without an error


class Shell(InteractiveShell):
    """IPython without a terminal or a kernel; `outputs` keeps what a cell displays, as notebook outputs."""

    def __init__(self, **settings: Any) -> None:
        self.outputs: list[NotebookNode] = []
        super().__init__(**settings)

    def run(self, cell: NotebookNode) -> ExecutionResult:
        """Run a cell, which gets what it displays and prints as its outputs."""
        self.outputs = cell.outputs = []
        with redirect_stdout(Tee(self.outputs)):
            return self.run_cell(cell.source, store_history=True)

    def ask_exit(self) -> None:
        """`exit` and `quit` end a cell as `sys.exit` does."""
        raise SystemExit

    def init_display_pub(self) -> None:
        self.display_pub = Publisher(parent=self, shell=self)

    def enable_gui(self, gui: str | None = None) -> None:
        """`%matplotlib inline` asks for no window, and there is none."""

    def init_displayhook(self) -> None:
        super().init_displayhook()
        self.displayhook = Hook(parent=self, shell=self, cache_size=0)
        self.display_trap.hook = self.displayhook

    def _showtraceback(self, etype: type, evalue: BaseException, stb: list[str]) -> None:
        if isinstance(evalue, Missing):
            self.outputs.append(
                new_output("display_data", data={"text/markdown": f"Not to be shown yet: {evalue}."})
            )
        elif not isinstance(evalue, ResultsMissing):
            self.outputs.append(new_output("error", ename=etype.__name__, evalue=str(evalue), traceback=stb))


class Publisher(DisplayPublisher):
    def publish(self, data: dict, metadata: dict | None = None, *_: Any, **__: Any) -> None:
        assert isinstance(self.shell, Shell)
        self.shell.outputs.append(new_output("display_data", data=data, metadata=metadata or {}))

    def clear_output(self, wait: bool = False) -> None:
        assert isinstance(self.shell, Shell)
        self.shell.outputs.clear()


class Hook(DisplayHook):
    def write_output_prompt(self) -> None:
        pass

    def write_format_data(self, format_dict: dict, md_dict: dict | None = None) -> None:
        assert isinstance(self.shell, Shell)
        self.shell.outputs.append(new_output("execute_result", data=format_dict, metadata=md_dict or {}))


class Tee:
    """Standard output of a cell, to the notebook and immediately to the terminal."""

    def __init__(self, outputs: list[NotebookNode]) -> None:
        self.outputs, self.terminal = outputs, sys.stdout

    def write(self, text: str) -> int:
        if text:
            last = self.outputs[-1] if self.outputs else None
            if last is None or last.output_type != "stream":
                self.outputs.append(last := new_output("stream", name="stdout", text=""))
            last.text += text
        return self.terminal.write(text)

    def flush(self) -> None:
        self.terminal.flush()

    def isatty(self) -> bool:
        return False


def run_cells(notebook: NotebookNode) -> None:
    """Run a notebook's cells, which get their outputs, up to the first that fails.

    Where a page cannot show everything, its claims are still decided, on the results that exist.

    Raises:
        ConfigError: a cell ends the process.
    """
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    shell = Shell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    configure_inline_support(shell, os.environ["MPLBACKEND"])  # as a kernel does: `plt.show()` shows
    waiting = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]
    result = None
    while waiting and (result is None or result.success):
        result = shell.run(cell := waiting.pop(0))
        if isinstance(result.error_in_exec, SystemExit):  # which IPython takes for the end of a session
            raise ConfigError(
                f"the cell {shortened(cell.source)} ends the notebook before its end; take it away."
            )
    if result and isinstance(result.error_in_exec, IN_ORDER) and "artifact" in shell.user_ns:
        for cell in waiting:
            if cell.source.strip() == JUDGE:
                shell.run(cell)
