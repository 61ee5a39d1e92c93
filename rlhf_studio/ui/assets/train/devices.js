// The device picker: what the computer has, as one choice that sets three settings together.
import { each, el, setText, show } from "../shared/dom.js";
import { Field, formatValue, same } from "./form.js";
import { t } from "../shared/language.js";

const [DEVICE, PROCESSES, FILE] = ["engine.device", "engine.processes", "engine.accelerate_config"];

/** Which choice the values are; null for values that are none. `value` looks a setting up. */
function choiceOf(value) {
  const [device, processes] = [value(DEVICE), value(PROCESSES)];
  if (value(FILE)) return "file";
  if (device === "auto" || device === "cpu") return device;
  if (!/^cuda(:\d+)?$/.test(device)) return null;
  return processes === 1 ? "gpu" : processes === 0 ? "gpus" : "several";
}

/** The same in a few words, for the closed section. */
export function deviceWords(value) {
  const [device, processes] = [value(DEVICE), value(PROCESSES)];
  const together = processes > 1 ? t(", {processes} processes", { processes: formatValue(processes) }) : "";
  switch (choiceOf(value)) {
    case "file":
      return t("accelerate configuration file");
    case "auto":
      return t("automatic device{together}", { together });
    case "cpu":
      return `CPU${together}`;
    case "gpu":
      return device === "cuda" ? t("one GPU") : t("GPU {length}", { length: device.slice("cuda:".length) });
    case "gpus":
      return t("all GPUs");
    case "several":
      return t("{processes} GPUs", { processes: formatValue(processes) });
    default:
      return t("device {device}", { device });
  }
}

/**
 * @param spec    the field "engine.device" as the server describes it
 * @param devices (help, choices: [(name, title, detail, sets, unavailable, gpus)])
 * @param state   (value(name), basis(name))
 * @param onset   called with {setting: value} at every choice
 */
export class DevicePicker extends Field {
  constructor(spec, devices, state, onset) {
    super({ ...spec, wide: true, help: devices.help }, state.value(DEVICE), state.basis(DEVICE), onset);
    const several = {
      name: "several",
      title: "",
      detail: t("One process on each."),
      sets: null,
      unavailable: "",
      gpus: [],
    };
    this.state = state;
    this.path = null;
    this.rows = new Map([...devices.choices, several].map((choice) => [choice.name, this.row(choice)]));
    each(this.control, [...this.rows.values()], (row) => row.node);
    this.refresh();
  }

  buildControl() {
    this.read = () => this.rows && this.readChoice();
    return el("div", {
      class: "rs-devices",
      role: "radiogroup",
      id: this.id,
      "aria-labelledby": `${this.id}-label`,
      "aria-describedby": this.described,
    });
  }

  row(choice) {
    const id = `${this.id}-${choice.name}`;
    const radio = el("input", {
      type: "radio",
      name: this.id,
      id,
      value: choice.name,
      disabled: Boolean(choice.unavailable),
      "aria-describedby": `${id}-detail`,
      onchange: () => this.pick(choice),
    });
    const title = el("span", { class: "rs-device-title" }, choice.title);
    const detail = el("span", { class: "rs-device-detail", id: `${id}-detail` }, choice.unavailable || choice.detail);
    const select = choice.gpus.length > 1 ? this.select(choice) : null;
    const slot = el("div", { class: "rs-device-slot", hidden: true }, select);
    const label = el(
      "label",
      { for: id, class: choice.unavailable ? "rs-device rs-device-missing" : "rs-device" },
      radio,
      el("span", {}, title, detail),
    );
    return {
      choice,
      radio,
      title,
      detail,
      select,
      slot,
      node: el("div", { data: { choice: choice.name } }, label, slot),
    };
  }

  select(choice) {
    const options = choice.gpus.map((gpu) => el("option", { value: gpu.value }, gpu.title));
    const select = el(
      "select",
      {
        class: "rs-input",
        "aria-label": t("Which GPU"),
        onchange: () => this.send({ ...choice.sets, [DEVICE]: select.value }),
      },
      options,
    );
    return select;
  }

  /** The field of accelerate's file, which is shown below its choice. */
  adopt(field) {
    this.path = field;
    if (!field) {
      // this stage runs in one process
      for (const name of ["file", "gpus"]) this.rows.get(name)?.node.remove();
      return;
    }
    this.rows.get("file").slot.append(field.node);
  }

  pick(choice) {
    this.asked = choice.name;
    const { select } = this.rows.get(choice.name);
    this.send(select ? { ...choice.sets, [DEVICE]: select.value } : choice.sets);
    if (choice.name === "file") this.path?.focus();
  }

  send(values) {
    this.value = values[DEVICE];
    this.onset(values);
    this.refresh();
  }

  reset() {
    this.asked = null;
    this.send(Object.fromEntries([DEVICE, PROCESSES, FILE].map((name) => [name, this.state.basis(name)])));
    this.focus();
  }

  load(value, basis) {
    this.asked = null;
    super.load(value, basis);
  }

  /** Whether the picker itself says what this setting is, so that its own field need not. */
  shows(name) {
    return name === PROCESSES && ["gpu", "gpus", "file"].includes(this.chosen);
  }

  readChoice() {
    const value = (name) => this.state.value(name);
    // the field of the path stays when a person empties it to type another one
    if (value(FILE)) this.asked = "file";
    this.chosen = this.asked === "file" ? "file" : choiceOf(value);
    for (const [name, row] of this.rows) {
      row.radio.checked = name === this.chosen;
      show(row.slot, name === this.chosen && Boolean(row.select || name === "file"));
    }
    const { choice, detail } = this.rows.get("file");
    const unnamed = this.chosen === "file" && !value(FILE);
    setText(
      detail,
      unnamed
        ? t("{detail} Until one is named, the run takes: {value}.", {
            detail: choice.detail,
            value: deviceWords(value),
          })
        : choice.detail,
    );
    const several = this.rows.get("several");
    setText(several.title, t("{processes} GPUs", { processes: formatValue(value(PROCESSES)) }));
    show(several.node, this.chosen === "several");
    const { select } = this.rows.get("gpu");
    if (select && this.chosen === "gpu") this.showGpu(select);
    this.focusable = [...this.rows.values()].find((row) => row.radio.checked)?.radio || this.rows.get("auto").radio;
  }

  /** The GPU that is set; one that is not there is shown too, with a word about it. */
  showGpu(select) {
    const device = this.state.value(DEVICE);
    const wanted = device === "cuda" ? select.options[0].value : device;
    select.querySelector("[data-missing]")?.remove();
    if (![...select.options].some((option) => option.value === wanted)) {
      select.append(
        el(
          "option",
          { value: wanted, data: { missing: "" } },
          t("{length}: not on this computer", { length: wanted.slice("cuda:".length) }),
        ),
      );
    }
    select.value = wanted;
  }

  refresh() {
    super.refresh();
    if (!this.changed) return;
    const words = deviceWords((name) => this.state.basis(name));
    this.dot.title = t("Changed; the recipe has: {words}. Click to go back.", { words });
    this.dot.setAttribute("aria-label", t("Reset {title} to {words}", { title: this.spec.title, words }));
  }

  get changed() {
    return [DEVICE, PROCESSES, FILE].some((name) => this.differs(name));
  }

  /** Whether this setting alone is changed. */
  get own() {
    return this.differs(DEVICE);
  }

  differs(name) {
    return this.state ? !same(this.state.value(name), this.state.basis(name)) : false;
  }

  /** Another setting may have changed what is chosen. */
  follow() {
    this.value = this.state.value(DEVICE);
    this.refresh();
  }
}
